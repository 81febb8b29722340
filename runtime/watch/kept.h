/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Locks that a kernel function keeps which faulted. */
#ifndef GUARDRAIL_WATCH_KEPT_H
#define GUARDRAIL_WATCH_KEPT_H

#include "base/kernel.h"

#define GUARDRAIL_KEPT 8

/**
 * struct guardrail_kept - Locks that the current task holds.
 * @n: Number of locks.
 * @lock: Their addresses; the lowest bit is set for semaphores.
 */
struct guardrail_kept {
	unsigned int n;
	unsigned long lock[GUARDRAIL_KEPT];
};

/**
 * guardrail_kept_add() - Add the locks that a function on the stack may have taken.
 * @kept: The locks.
 * @addr: Address in the function.
 *
 * Of the kernel's variables, mutexes and semaphores for writing are found, which the code of the function names and the
 * current task holds. Locks in objects are not found.
 *
 * Context: Any.
 */
void guardrail_kept_add(struct guardrail_kept *kept, unsigned long addr);

/**
 * guardrail_kept_remove() - Remove the locks that another function may have taken.
 * @kept: The locks.
 * @addr: Address in the other function.
 *
 * Context: Any.
 */
void guardrail_kept_remove(struct guardrail_kept *kept, unsigned long addr);

/**
 * guardrail_kept_release() - Release the locks, except for those that an entry of the task has noted as its own.
 * @kept: The locks.
 *
 * Context: The task's.
 */
void guardrail_kept_release(const struct guardrail_kept *kept);

#endif /* GUARDRAIL_WATCH_KEPT_H */
