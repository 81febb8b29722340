/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Slow paths of the checks in guarded modules. guardrail_abi.h declares the functions that modules call. */
#ifndef GUARDRAIL_BORDER_CHECK_H
#define GUARDRAIL_BORDER_CHECK_H

#include "base/kernel.h"

/**
 * struct guardrail_slow_counts - How often slow paths ran on one CPU.
 * @write: Slow checks of single stores.
 * @range: Checks of ranges.
 * @percpu: Checks of stores to per-CPU variables.
 * @icall: Slow checks of calls.
 * @part: Stores allowed since the domain may write a part of the slot.
 * @stack: Stores allowed on the stack.
 * @denied: Violations.
 */
struct guardrail_slow_counts {
	unsigned long write, range, percpu, icall, part, stack, denied;
};

/* Each CPU changes its own. */
DECLARE_PER_CPU(struct guardrail_slow_counts, guardrail_slow_counts);

/**
 * guardrail_may_write_stack() - Test for a range of the current stack that guarded code may write.
 * @addr: First byte.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: True where the code may use all of it, the kernel uses no object there, and no function returns by it.
 */
bool guardrail_may_write_stack(unsigned long addr, unsigned long n);

#endif /* GUARDRAIL_BORDER_CHECK_H */
