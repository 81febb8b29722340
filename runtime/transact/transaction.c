// SPDX-License-Identifier: GPL-2.0-or-later
/* Transactions: begin, end and undo; transact/transaction.h describes them. */
#include <linux/hardirq.h>
#include <linux/preempt.h>
#include <linux/sched.h>

#include "base/symbols.h"
#include "domain/code.h"
#include "domain/counts.h"
#include "domain/entry.h"
#include "domain/ops.h"
#include "domain/policy.h"
#include "rights/aside.h"
#include "rights/object.h"
#include "rights/tag.h"
#include "transact/requests.h"
#include "transact/transaction.h"
#include "transact/undo.h"

DEFINE_PER_CPU(int, guardrail_transacting);
EXPORT_PER_CPU_SYMBOL_GPL(guardrail_transacting);

DEFINE_PER_CPU(struct guardrail_transaction *, guardrail_quick);

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
	struct guardrail_transaction **slot, *tx = guardrail_quick_one();

	if (tx)
		return tx;
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
	/* Where nothing but interrupts comes between, which enter by guardrail_transact_begins(). */
	if (tx->is_quick)
		this_cpu_write(guardrail_quick, tx);
	if (this_cpu_inc_return(guardrail_transacting) == 1)
		this_cpu_write(guardrail_table, READ_ONCE(guardrail_aside));
	local_irq_restore(flags);
}

static void close(struct guardrail_transaction *tx)
{
	unsigned long flags;

	tx->over = true;
	local_irq_save(flags);
	this_cpu_write(guardrail_quick, NULL);
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

/*
 * A function that the driver calls by pointer is a part of what calls it. Alone it could not be ended: it has no value that
 * tells the driver of an error.
 */
static bool is_part(const struct guardrail_record *record)
{
	const struct guardrail_record *outer = record->previous;

	return outer && outer->entry && outer->entry->domain == record->entry->domain && guardrail_is_guarded(record->call.caller);
}

void guardrail_transact_begins(struct guardrail_record *record)
{
	struct guardrail_transaction **slot, *tx;
	struct guardrail_record *innermost;
	struct guardrail_chosen *chosen;
	struct guardrail_log log;

	slot = guardrail_transaction_slot(&innermost);
	if (slot && *slot && !(*slot)->over && !(*slot)->making && has(*slot, record))
		return;
	/* What this entry does is no part of the transaction that it may have come into. */
	this_cpu_write(guardrail_quick, NULL);
	/* Under other policies no entry is ended. */
	if (!slot || !guardrail_ends_entries())
		return;
	chosen = guardrail_choose(record);
	if (!chosen || is_thread_body(record) || is_part(record))
		return;
	tx = guardrail_log_new(&log, sizeof(*tx));
	if (!tx) {
		atomic_long_inc(&chosen->refused);
		return;
	}
	*tx = (struct guardrail_transaction){ .outer = *slot, .record = record, .chosen = chosen, .log = log, .domain = record->entry->domain,
		.task = current,
		.is_quick = !IS_ENABLED(CONFIG_PREEMPT_RT) && IS_ENABLED(CONFIG_VMAP_STACK) && (preempt_count() || irqs_disabled()) };
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

	this_cpu_write(guardrail_quick, NULL);
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
	u32 domain = tx->restores ? tx->domain : 0;
	struct guardrail_log log = tx->log;

	guardrail_requests_drop(tx);
	*slot = tx->outer;
	guardrail_log_free(&log);
	if (domain)
		restore_device(domain);
}

/* Undoes the stores of a transaction. The device would act on what is undone, and write to it. */
static void undo_stores(struct guardrail_transaction *tx)
{
	if (!tx->kept)
		guardrail_undo_look(tx);
	guardrail_requests_end(tx);
	if (tx->touched || tx->kept)
		stop_device(tx->domain);
	if (!tx->kept)
		guardrail_undo_stores(tx);
}

/* What it has done stays. The calls that were put off are made at its end, and then its device is restored. */
static void keep(struct guardrail_transaction *tx)
{
	close(tx);
	atomic_long_inc(&tx->chosen->fell_back);
	pr_info_ratelimited("domain %u: %s is not undone, since its request was started; its device is restored next\n", tx->domain,
			    tx->record->entry->function);
	if (tx->record->saved.unwound)
		tx->record->saved.unwound = GUARDRAIL_STAYS;
	tx->restores = true;
}

/* Undoes the calls of a transaction whose stores are undone, and ends it. */
static void roll_back(struct guardrail_transaction *tx, struct guardrail_transaction **slot)
{
	const struct guardrail_entry *entry = tx->record->entry;
	bool touched = tx->touched, conflict = tx->conflict;

	if (tx->kept) {
		keep(tx);
		return;
	}
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
	if (tx->record->saved.unwound)
		tx->record->saved.unwound = GUARDRAIL_UNDONE;
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
	if (tx->doomed)
		guardrail_requests_judge(tx);
	if (!tx->over && tx->doomed && !tx->irrevocable) {
		bool kept = tx->kept;

		undo_stores(tx);
		roll_back(tx, slot);
		if (!kept)
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
	guardrail_requests_judge(tx);
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

	if (!tx || tx->over || !has(tx, record))
		return false;
	guardrail_requests_judge(tx);
	if (tx->irrevocable)
		return false;
	tx->doomed = true;
	if (tx->record == record)
		undo_stores(tx);
	else
		/* Their completions may lie in the frames that end. */
		guardrail_requests_end(tx);
	return true;
}

void guardrail_transact_undone(struct guardrail_record *record)
{
	struct guardrail_record *innermost;
	struct guardrail_transaction **slot = guardrail_transaction_slot(&innermost), *tx = slot ? *slot : NULL;

	if (tx && tx->record == record && !tx->over)
		roll_back(tx, slot);
}
