/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Waiting until nothing uses a pointer any more that was replaced. */
#ifndef GUARDRAIL_BASE_GRACE_H
#define GUARDRAIL_BASE_GRACE_H

#include <linux/rcupdate.h>

/**
 * guardrail_wait_readers() - Wait until nothing uses a pointer that it read before.
 *
 * For pointers of the kernel's that readers use under no lock. Each task has slept, left the kernel, or was idle since, and
 * each reader of RCU has ended. A task that sleeps between the read and the use is not waited for.
 *
 * Context: Process; may sleep.
 */
static inline void guardrail_wait_readers(void)
{
	synchronize_rcu_tasks();
	synchronize_rcu();
}

#endif /* GUARDRAIL_BASE_GRACE_H */
