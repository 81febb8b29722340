/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entries that do not end: a timer on each CPU looks at what runs. */
#ifndef GUARDRAIL_WATCH_WATCHDOG_H
#define GUARDRAIL_WATCH_WATCHDOG_H

#include "base/kernel.h"

/**
 * guardrail_watchdog_init() - Start the timers.
 *
 * Return: 0 or an error.
 */
int __init guardrail_watchdog_init(void);

/**
 * guardrail_watchdog_exit() - Stop the timers.
 */
void guardrail_watchdog_exit(void);

/**
 * guardrail_end_running() - End the entry that this CPU is in, at once or when what it has called returns.
 * @regs: Registers of the interrupted code.
 *
 * Context: Hard interrupt or NMI.
 * Return: False where there is no entry that can be ended.
 */
bool guardrail_end_running(struct pt_regs *regs);

#endif /* GUARDRAIL_WATCH_WATCHDOG_H */
