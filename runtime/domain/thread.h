/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What inlined code of the kernel writes of the task that it runs in. */
#ifndef GUARDRAIL_DOMAIN_THREAD_H
#define GUARDRAIL_DOMAIN_THREAD_H

#include "domain/entry.h"

/**
 * struct guardrail_thread - State of a task when its entries first wrote it.
 * @flags: Its flags.
 * @journal: Its transaction.
 * @device: The device that it writes to, in kernels whose tasks note it.
 * @faults_disabled: How often it has disabled page faults.
 * @noted: Whether the others are set.
 */
struct guardrail_thread {
	unsigned int flags;
	void *journal;
	struct backing_dev_info *device;
	int faults_disabled;
	bool noted;
};

/**
 * guardrail_is_thread_state() - Test whether a store goes to what a task may change of itself, and note the old state.
 * @addr: Address of the store.
 * @n: Number of bytes.
 *
 * A task that is about to wait sets its own state. Inlined functions limit what its allocations may do, and note the
 * transaction that it takes part in; both last no longer than the task's outermost entry.
 *
 * Context: Any but NMI.
 */
bool guardrail_is_thread_state(unsigned long addr, unsigned long n);

/**
 * guardrail_thread_left() - Compare the state of a task, whose outermost entry returns, with the old one.
 * @old: The old state.
 * @record: Record of the entry.
 *
 * Context: That of the entry.
 */
void guardrail_thread_left(const struct guardrail_thread *old, const struct guardrail_record *record);

#endif /* GUARDRAIL_DOMAIN_THREAD_H */
