// SPDX-License-Identifier: GPL-2.0-or-later
/* Transactions: begin, end and undo; transact/transaction.h describes them. */
#include <linux/hardirq.h>
#include <linux/preempt.h>
#include <linux/sched.h>

#include "base/symbols.h"
#include "domain/counts.h"
#include "domain/entry.h"
#include "domain/ops.h"
#include "domain/policy.h"
#include "rights/object.h"
#include "rights/tag.h"
#include "transact/transaction.h"
#include "transact/undo.h"

/* With this in place of the table's address, no tag has an address: nor has that of a store that is not aligned. */
#define NOWHERE (1UL << 60)

DEFINE_PER_CPU(int, guardrail_transacting);
EXPORT_PER_CPU_SYMBOL_GPL(guardrail_transacting);

/* Two declarations: the kernel's genksyms does not end at one of both. */
static void (*stop_device)(u32 domain);
static void (*restore_device)(u32 domain);
/* The kernel's function that calls the bodies of its threads. */
static unsigned long thread_start, thread_end;

void __init guardrail_transact_init(void (*stop)(u32 domain), void (*restore)(u32 domain))
{
	stop_device = stop;
	restore_device = restore;
	thread_start = guardrail_find_symbol("kthread");
	if (!thread_start || !guardrail_symbol_range(thread_start, &thread_start, &thread_end))
		thread_start = thread_end = 0;
	guardrail_owner_comes = guardrail_transact_owned;
}

/* True where the code of the innermost entry is a part of the transaction. */
static bool has(const struct guardrail_transaction *tx, const struct guardrail_record *innermost)
{
	const struct guardrail_record *record;

	for (record = innermost; record != tx->record; record = record->previous)
		if (!record || !record->entry || !is_in_context_of(record, tx->record))
			return false;
	return true;
}

struct guardrail_transaction *guardrail_transaction(void)
{
	struct guardrail_record *innermost;
	struct guardrail_transaction **slot, *tx;

	slot = guardrail_transaction_slot(&innermost);
	tx = slot ? *slot : NULL;
	return tx && !tx->over && !tx->making && has(tx, innermost) ? tx : NULL;
}

/* Each check of a store on this CPU goes to its slow path from now on. */
static void open(struct guardrail_transaction *tx)
{
	unsigned long flags;

	/* It may be called with a lock that it releases for a while. */
	tx->pinned = in_task();
	if (tx->pinned) {
		migrate_disable();
		tx->record->saved.migration_disabled = current->migration_disabled;
	}
	local_irq_save(flags);
	if (this_cpu_inc_return(guardrail_transacting) == 1)
		this_cpu_write(guardrail_table, NOWHERE);
	local_irq_restore(flags);
}

static void close(struct guardrail_transaction *tx)
{
	unsigned long flags;

	tx->over = true;
	local_irq_save(flags);
	if (!this_cpu_dec_return(guardrail_transacting))
		this_cpu_write(guardrail_table, guardrail_tags);
	local_irq_restore(flags);
	if (tx->pinned) {
		migrate_enable();
		tx->record->saved.migration_disabled = current->migration_disabled;
	}
}

/* The body of a kernel's thread ends with the thread, so it would be a transaction all the time. */
static bool is_thread_body(const struct guardrail_record *record)
{
	return current->flags & PF_KTHREAD && !record->previous && record->call.caller - thread_start < thread_end - thread_start;
}

void guardrail_transact_begins(struct guardrail_record *record)
{
	struct guardrail_transaction **slot, *tx;
	struct guardrail_record *innermost;
	struct guardrail_chosen *chosen;
	struct guardrail_log log;

	/* Under other policies no entry is ended. */
	if (!guardrail_ends_entries())
		return;
	slot = guardrail_transaction_slot(&innermost);
	if (!slot || (*slot && !(*slot)->over && !(*slot)->making && has(*slot, record)))
		return;
	chosen = guardrail_choose(record);
	if (!chosen || is_thread_body(record))
		return;
	tx = guardrail_log_new(&log, sizeof(*tx));
	if (!tx) {
		atomic_long_inc(&chosen->refused);
		return;
	}
	*tx = (struct guardrail_transaction){ .outer = *slot, .record = record, .chosen = chosen, .log = log, .domain = record->entry->domain };
	atomic_long_inc(&chosen->begun);
	*slot = tx;
	open(tx);
}

/* Takes the first call that was put off, or the first one that hands a packet to GRO. */
static struct guardrail_deferred *take_deferred(struct guardrail_transaction *tx, bool packets)
{
	struct guardrail_deferred **place = &tx->first, *before = NULL, *found;

	while (*place && packets && !(*place)->packet) {
		before = *place;
		place = &before->next;
	}
	found = *place;
	if (!found)
		return NULL;
	*place = found->next;
	if (tx->last == found)
		tx->last = before;
	return found;
}

/* One of the calls may be ended, and then this is called again for the others. */
void guardrail_transact_make(struct guardrail_transaction *tx, bool packets)
{
	struct guardrail_deferred *deferred;

	tx->making = true;
	while ((deferred = take_deferred(tx, packets))) {
		unsigned long (*call)(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long) = (void *)deferred->call;
		const unsigned long *args = deferred->args;

		call(args[0], args[1], args[2], args[3], args[4], args[5]);
	}
	tx->making = false;
}

static void finish(struct guardrail_transaction *tx, struct guardrail_transaction **slot)
{
	struct guardrail_log log = tx->log;

	*slot = tx->outer;
	guardrail_log_free(&log);
}

/* Undoes the stores of a transaction. The device would act on what is undone, and write to it. */
static void undo_stores(struct guardrail_transaction *tx)
{
	if (tx->touched)
		stop_device(tx->domain);
	guardrail_undo_stores(tx);
}

/* Undoes the calls of a transaction whose stores are undone, and ends it. */
static void roll_back(struct guardrail_transaction *tx, struct guardrail_transaction **slot)
{
	const struct guardrail_entry *entry = tx->record->entry;
	bool touched = tx->touched, conflict = tx->conflict;

	close(tx);
	guardrail_undo_calls(tx);
	atomic_long_inc(&tx->chosen->rolled_back);
	pr_info_ratelimited("domain %u: %s is rolled back: %u stores, %u calls%s\n", entry->domain, entry->function, tx->stores, tx->calls,
			    touched ? "; its device is restored next" : "");
	if (conflict)
		pr_warn_ratelimited("domain %u: others have changed meanwhile what %s wrote, so not all of it is undone\n", entry->domain, entry->function);
	if (tx->given_away)
		pr_info_ratelimited("%u of these stores stay, since their memory was given away meanwhile\n", tx->given_away);
	/* The kernel calls a poll again that has used up its budget. Any other number says that it has nothing to do. */
	tx->record->call.result = entry->flags & GUARDRAIL_ENTRY_POLL ? (u32)tx->record->call.args[1] : entry->dead;
	tx->record->call.second = 0;
	finish(tx, slot);
	if (conflict && guardrail_policy() == GUARDRAIL_POLICY_RECOVER)
		guardrail_domain_ops->recover(entry->domain, "a transaction is not undone as a whole");
	else if (touched)
		restore_device(entry->domain);
}

void guardrail_transact_abandon(void)
{
	struct guardrail_record *innermost;
	struct guardrail_transaction **slot = guardrail_transaction_slot(&innermost), *tx;

	while (slot && (tx = *slot)) {
		if (!tx->over)
			close(tx);
		guardrail_transact_make(tx, false);
		finish(tx, slot);
	}
}

void guardrail_transact_ends(struct guardrail_record *record)
{
	struct guardrail_record *innermost;
	struct guardrail_transaction **slot = guardrail_transaction_slot(&innermost), *tx = slot ? *slot : NULL;

	if (!tx || tx->record != record)
		return;
	if (!tx->over && tx->doomed && !tx->irrevocable) {
		undo_stores(tx);
		roll_back(tx, slot);
		return;
	}
	if (!tx->over) {
		if (!record->saved.unwound && !tx->doomed)
			atomic_long_inc(&tx->chosen->committed);
		close(tx);
		if (tx->doomed && !record->saved.unwound && guardrail_policy() == GUARDRAIL_POLICY_RECOVER)
			guardrail_domain_ops->recover(tx->domain, "a part of a transaction was ended that cannot be undone");
	}
	/* A violation in one of the calls ends it, and this is called again for the others. */
	tx->unwound |= record->saved.unwound;
	record->saved.unwound = 0;
	guardrail_transact_make(tx, false);
	record->saved.unwound = tx->unwound;
	finish(tx, slot);
}

bool guardrail_rolls_back(u32 domain)
{
	struct guardrail_transaction *tx = is_transacting() ? guardrail_transaction() : NULL;

	if (!tx || tx->domain != domain)
		return false;
	if (!tx->irrevocable) {
		tx->doomed = true;
		return true;
	}
	atomic_long_inc(&tx->chosen->fell_back);
	if (tx->why)
		pr_info_ratelimited("domain %u: %s is not rolled back because of %s, %s\n", domain, tx->record->entry->function, tx->why,
				    tx->irrevocable);
	else
		pr_info_ratelimited("domain %u: %s is not rolled back, since %s\n", domain, tx->record->entry->function, tx->irrevocable);
	return false;
}

bool guardrail_transact_undoes(struct guardrail_record *record)
{
	struct guardrail_record *innermost;
	struct guardrail_transaction **slot = guardrail_transaction_slot(&innermost), *tx = slot ? *slot : NULL;

	if (!tx || tx->over || tx->irrevocable || !has(tx, record))
		return false;
	tx->doomed = true;
	if (tx->record == record)
		undo_stores(tx);
	return true;
}

void guardrail_transact_undone(struct guardrail_record *record)
{
	struct guardrail_record *innermost;
	struct guardrail_transaction **slot = guardrail_transaction_slot(&innermost), *tx = slot ? *slot : NULL;

	if (tx && tx->record == record && !tx->over)
		roll_back(tx, slot);
}
