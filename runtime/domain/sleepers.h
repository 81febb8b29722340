/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Tasks that sleep in a dead domain: what they wait for may never come. */
#ifndef GUARDRAIL_DOMAIN_SLEEPERS_H
#define GUARDRAIL_DOMAIN_SLEEPERS_H

#include <linux/sched.h>

#include "base/kernel.h"

/**
 * guardrail_sleepers_wake() - Wake the tasks that sleep in a domain, as a signal does.
 * @domain: The domain, which is dead.
 *
 * Code of the kernel sleeps again where it waits for an event alone. One that a signal interrupts returns to the module,
 * where its thunk or the watchdog ends the entry.
 *
 * Context: Process.
 */
void guardrail_sleepers_wake(u32 domain);

/**
 * guardrail_sleeper_left() - Take back what guardrail_sleepers_wake() has noted of the current task.
 *
 * A task of a program loses it when it returns there.
 *
 * Context: Any but NMI.
 */
static inline void guardrail_sleeper_left(void)
{
	if (in_task() && current->flags & PF_KTHREAD)
		clear_thread_flag(TIF_NOTIFY_SIGNAL);
}

#endif /* GUARDRAIL_DOMAIN_SLEEPERS_H */
