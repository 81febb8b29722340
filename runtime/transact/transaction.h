/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Transactions: an entry that is ended has done nothing. docs/design/recovery.md tells what is undone, and how.
 *
 * A transaction belongs to a task, or to an interrupt's handler, and to its entry into a domain. Entries that this entry
 * leads to in the same domain and context are parts of it.
 */
#ifndef GUARDRAIL_TRANSACT_TRANSACTION_H
#define GUARDRAIL_TRANSACT_TRANSACTION_H

#include <linux/percpu.h>

#include "transact/choose.h"
#include "transact/log.h"

/* Pages of virtual memory that a transaction keeps in mind, a power of two. */
#define GUARDRAIL_PLAIN 8

/**
 * struct guardrail_transaction - A transaction under way.
 * @outer: That of what this one has interrupted, or NULL.
 * @record: The entry.
 * @chosen: What is counted of the entry.
 * @irrevocable: What cannot be undone, in words; NULL where all can.
 * @why: The function that made it so, or NULL.
 * @log: What undoes it.
 * @first: The first call that was put off, or NULL.
 * @last: The last one.
 * @domain: The domain.
 * @stores: How many stores the log has.
 * @calls: How many calls it has.
 * @given_away: How many stores were not undone, since their memory is not the domain's any more.
 * @released: How many locks it has released.
 * @compared: For undoing: with what was seen at which of these, memory was compared.
 * @touched: The device may know of it.
 * @doomed: A part of it was ended, so all of it ends.
 * @conflict: Others have changed what it stored, so not all of it is undone.
 * @pinned: The task stays on its CPU.
 * @over: It is over, and what was put off is done.
 * @unwound: Its entry was ended, and how (struct guardrail_record).
 * @making: What was put off is done, and is no part of it.
 * @kept: What it has done stays, since the driver may be asked about it from now on. Where it is ended, its device is restored.
 * @is_quick: It began with preemption or interrupts off, so threads seldom come between.
 * @task: The thread that it belongs to, or that its interrupt came into.
 * @restores: It stays, and its device is restored at its end.
 * @plain: Numbers of the pages of virtual memory that were found to be no registers.
 * @asked: It has asked a device for something (transact/requests.h).
 */
struct guardrail_transaction {
	struct guardrail_transaction *outer;
	struct guardrail_record *record;
	struct guardrail_chosen *chosen;
	const char *irrevocable;
	const char *why;
	struct guardrail_log log;
	struct guardrail_deferred *first, *last;
	const struct task_struct *task;
	u32 domain;
	unsigned int stores, calls, given_away;
	u16 released, compared;
	u8 unwound;
	bool touched, doomed, conflict, pinned, over, making, restores, kept, asked, is_quick;
	unsigned long plain[GUARDRAIL_PLAIN];
};

/* The transaction that all guarded code on the CPU is a part of; NULL where that has to be found out. */
DECLARE_PER_CPU(struct guardrail_transaction *, guardrail_quick);

/**
 * guardrail_quick_one() - Find a transaction by that word.
 *
 * The thread may have enabled preemption since, and another one runs, which was inside a module before.
 *
 * Context: Any but NMI.
 * Return: The transaction that the running code is a part of; NULL where that has to be found out.
 */
static __always_inline struct guardrail_transaction *guardrail_quick_one(void)
{
	struct guardrail_transaction *tx = this_cpu_read(guardrail_quick);

	return tx && tx->task == current ? tx : NULL;
}

/**
 * struct guardrail_deferred - A call that is made when its transaction is over.
 * @next: The next one.
 * @call: The thunk of the function.
 * @p: The allocation that it frees, or 0.
 * @packet: It hands a packet to GRO, which is done before its poll completes.
 * @args: Its arguments.
 */
struct guardrail_deferred {
	struct guardrail_deferred *next;
	unsigned long call;
	unsigned long p;
	bool packet;
	unsigned long args[6];
};

/**
 * struct guardrail_logged_owned - An allocation in a log.
 * @kind: Its kind.
 * @size: Its bytes.
 */
struct guardrail_logged_owned {
	u32 kind;
	unsigned long size;
};

/**
 * struct guardrail_logged_call - A call in a log.
 * @inverse: Name of the function that undoes it.
 * @args: That function's arguments.
 */
struct guardrail_logged_call {
	const char *inverse;
	unsigned long args[6];
};

/**
 * guardrail_transaction() - Find the transaction that the running code is a part of.
 *
 * Context: Any but NMI.
 * Return: The transaction, or NULL.
 */
struct guardrail_transaction *guardrail_transaction(void);

/**
 * is_transacting() - Test for transactions on this CPU, inlined.
 *
 * Return: True where guardrail_transaction() may find one.
 */
static __always_inline bool is_transacting(void)
{
	return unlikely(this_cpu_read(guardrail_transacting));
}

/**
 * guardrail_transact_store() - Log a store that is about to happen.
 * @addr: First byte, which the domain may write.
 * @n: Number of bytes.
 * @ip: The instruction.
 *
 * Context: Any but NMI.
 */
void guardrail_transact_store(unsigned long addr, unsigned long n, unsigned long ip);

/**
 * guardrail_transact_note() - Log something other than a store.
 * @tx: The transaction.
 * @mark: What it is.
 * @payload: Its payload.
 *
 * Context: Any but NMI.
 */
void guardrail_transact_note(struct guardrail_transaction *tx, const struct guardrail_mark *mark, const void *payload);

/**
 * guardrail_transact_owned() - Log a new allocation.
 * @domain: Domain that has it.
 * @p: First byte.
 * @size: Number of bytes.
 * @kind: Kind of the allocation.
 *
 * Context: Any but NMI.
 */
void guardrail_transact_owned(u32 domain, unsigned long p, unsigned long size, u32 kind);

/**
 * guardrail_transact_released() - Note that a lock is about to be released: others may change what was stored so far.
 *
 * Context: Any but NMI.
 */
void guardrail_transact_released(void);

/**
 * guardrail_transact_irrevocable() - Note that a transaction cannot be undone.
 * @tx: The transaction.
 * @what: Why, in words that stay.
 * @why: The function that did it, or NULL.
 *
 * Context: Any but NMI.
 */
void guardrail_transact_irrevocable(struct guardrail_transaction *tx, const char *what, const char *why);

/**
 * guardrail_transact_defer() - Put off a call.
 * @tx: The transaction.
 * @call: The call; @call->next is ignored.
 *
 * Context: Any but NMI.
 * Return: False where there is no room for it.
 */
bool guardrail_transact_defer(struct guardrail_transaction *tx, const struct guardrail_deferred *call);

/**
 * guardrail_transact_make() - Make the calls that were put off.
 * @tx: The transaction, which cannot be undone any more.
 * @packets: Only those that hand packets to GRO.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_transact_make(struct guardrail_transaction *tx, bool packets);

/**
 * guardrail_rolls_back() - Test whether the entry that is about to be ended is undone.
 * @domain: Its domain.
 *
 * The log says why where it cannot be. A transaction of which a part is ended ends as well.
 *
 * Context: Any but NMI.
 * Return: True where it is undone.
 */
bool guardrail_rolls_back(u32 domain);

/**
 * guardrail_transact_abandon() - End the transaction of a thread that ends inside a module, as if it had ended well.
 *
 * Context: Process.
 */
void guardrail_transact_abandon(void);

/* The calls of struct guardrail_domain_ops. */
void guardrail_transact_begins(struct guardrail_record *record);
void guardrail_transact_ends(struct guardrail_record *record);
bool guardrail_transact_undoes(struct guardrail_record *record);
void guardrail_transact_undone(struct guardrail_record *record);

/**
 * guardrail_transact_init() - Set what stops and restores devices that a transaction has touched which is undone.
 * @stop: Called with the domain before anything is undone, in any context that entries run in.
 * @restore: Called with the domain afterwards, in the same contexts.
 */
void __init guardrail_transact_init(void (*stop)(u32 domain), void (*restore)(u32 domain));

#endif /* GUARDRAIL_TRANSACT_TRANSACTION_H */
