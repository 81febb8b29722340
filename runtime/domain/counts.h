/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What an entry leaves of interrupts, preemption and RCU. It has to leave them as it found them. */
#ifndef GUARDRAIL_DOMAIN_COUNTS_H
#define GUARDRAIL_DOMAIN_COUNTS_H

#include <linux/hardirq.h>
#include <linux/irqflags.h>
#include <linux/preempt.h>
#include <linux/sched.h>

#include "base/kernel.h"

/**
 * counts_differ() - Compare interrupts and counters with those at the begin of an entry, inlined.
 * @saved: State at the begin of the entry.
 *
 * Return: True where something differs.
 */
static __always_inline bool counts_differ(const struct guardrail_saved *saved)
{
	unsigned long differ = preempt_count() ^ saved->preempt_count;

	differ |= (native_save_fl() ^ saved->flags) & X86_EFLAGS_IF;
#ifdef CONFIG_PREEMPT_RCU
	differ |= current->rcu_read_lock_nesting ^ saved->rcu_nesting;
#endif
	return differ | (current->migration_disabled ^ saved->migration_disabled);
}

/* The contexts that tell what interrupts a task from the task. */
#define CONTEXTS (NMI_MASK | HARDIRQ_MASK | SOFTIRQ_OFFSET)

/**
 * is_in_context_of() - Test for two entries into one domain, of which neither interrupts the other, inlined.
 * @record: An entry.
 * @outer: Another one, below which it is.
 *
 * Return: True where they are.
 */
static inline bool is_in_context_of(const struct guardrail_record *record, const struct guardrail_record *outer)
{
	return record->entry->domain == outer->entry->domain && !((record->saved.preempt_count ^ outer->saved.preempt_count) & CONTEXTS);
}

/**
 * guardrail_counts_left() - Handle a difference with which an entry returns.
 * @record: Record of the entry.
 *
 * If the domain itself called the entry, its caller has to make up for it; otherwise it is a violation.
 *
 * Context: That of the entry.
 */
void guardrail_counts_left(const struct guardrail_record *record);

/**
 * guardrail_counts_stay() - Accept what an entry is about to leave.
 * @record: Record of the entry.
 *
 * Context: That of the entry.
 */
void guardrail_counts_stay(struct guardrail_record *record);

#endif /* GUARDRAIL_DOMAIN_COUNTS_H */
