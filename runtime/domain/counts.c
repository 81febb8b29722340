// SPDX-License-Identifier: GPL-2.0-or-later
/* What an entry leaves of interrupts, preemption and RCU; domain/counts.h describes it. */
#include <linux/hardirq.h>

#include "domain/counts.h"
#include "domain/ops.h"
#include "domain/unwind.h"

/* True where another entry of the domain has called this one, in the same context: that one is compared in its turn. */
static bool is_inner(const struct guardrail_record *record)
{
	const struct guardrail_record *previous = record->previous;

	return previous && previous->entry && is_in_context_of(record, previous);
}

/* Writes in words what differs. */
static void describe(const struct guardrail_saved *saved, char *text, size_t size)
{
	unsigned int count = preempt_count() ^ saved->preempt_count;
	bool interrupts = irqs_disabled() == !!(saved->flags & X86_EFLAGS_IF), readers = false, migration;

#ifdef CONFIG_PREEMPT_RCU
	readers = current->rcu_read_lock_nesting != saved->rcu_nesting;
#endif
	migration = current->migration_disabled != saved->migration_disabled;
	scnprintf(text, size, "%s%s%s%s%s", interrupts ? irqs_disabled() ? "interrupts off, " : "interrupts on, " : "",
		  count & PREEMPT_MASK ? "another count of preemption, " : "",
		  count & SOFTIRQ_MASK ? "another count of bottom halves, " : "", readers ? "another count of RCU readers, " : "",
		  migration ? "another count of migration, " : "");
}

void guardrail_counts_left(const struct guardrail_record *record)
{
	char text[144];

	if (record->saved.unwound || is_inner(record))
		return;
	describe(&record->saved, text, sizeof(text));
	if (guardrail_domain_ops->counts_kept(text, record))
		guardrail_put_back(&record->saved);
}

void guardrail_counts_stay(struct guardrail_record *record)
{
	struct guardrail_saved *saved = &record->saved;

	saved->preempt_count = preempt_count();
	saved->flags = (saved->flags & ~X86_EFLAGS_IF) | (native_save_fl() & X86_EFLAGS_IF);
#ifdef CONFIG_PREEMPT_RCU
	saved->rcu_nesting = current->rcu_read_lock_nesting;
#endif
	saved->pagefault_disabled = current->pagefault_disabled;
	saved->migration_disabled = current->migration_disabled;
}
