/* SPDX-License-Identifier: GPL-2.0-or-later */
/* CPUs that run nothing but one entry or one interrupt. */
#ifndef GUARDRAIL_WATCH_STUCK_H
#define GUARDRAIL_WATCH_STUCK_H

#include "base/kernel.h"

/**
 * guardrail_stuck_init() - Set up the state of each CPU.
 *
 * Return: 0 or an error.
 */
int __init guardrail_stuck_init(void);

/**
 * guardrail_stuck_exit() - Stop; the timers that call guardrail_stuck_look() are gone.
 */
void guardrail_stuck_exit(void);

/**
 * guardrail_stuck_online() - Begin to look at a CPU.
 * @cpu: The CPU, which comes online.
 */
void guardrail_stuck_online(unsigned int cpu);

/**
 * guardrail_stuck_look() - Look at another CPU.
 * @seconds: After how long without a process a CPU is stuck; 0 for never.
 *
 * Context: The watchdog's timer on this CPU.
 * Return: True where it is to be called again soon.
 */
bool guardrail_stuck_look(unsigned int seconds);

#endif /* GUARDRAIL_WATCH_STUCK_H */
