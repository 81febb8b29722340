/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The recovery of a dead domain: teardown, a reload of its modules, and restored state. */
#ifndef GUARDRAIL_RECOVERY_RECOVER_H
#define GUARDRAIL_RECOVERY_RECOVER_H

#include "base/kernel.h"

/**
 * guardrail_recover_init() - Set up the work queue of recoveries.
 *
 * Return: 0, or -ENOMEM.
 */
int __init guardrail_recover_init(void);

/**
 * guardrail_recover_exit() - Free the work queue and what classes keep.
 */
void guardrail_recover_exit(void);

/**
 * guardrail_recover() - Kill a domain and start its recovery, unless it is dead already.
 * @domain: The domain.
 * @why: The reason, in words.
 *
 * Context: Any but NMI.
 */
void guardrail_recover(u32 domain, const char *why);

/**
 * guardrail_clear_dead() - Release what a dead domain holds before a module of it is unloaded.
 * @domain: The domain.
 * @gone: Set when nothing uses the module any more.
 *
 * Context: Process.
 */
void guardrail_clear_dead(u32 domain, bool *gone);

#endif /* GUARDRAIL_RECOVERY_RECOVER_H */
