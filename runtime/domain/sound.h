/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Locks in the driver's memory, whose lists the kernel follows: a forged one would lead it anywhere. */
#ifndef GUARDRAIL_DOMAIN_SOUND_H
#define GUARDRAIL_DOMAIN_SOUND_H

#include "base/kernel.h"

/**
 * guardrail_links_return() - Test whether the neighbors of a node lead back to it.
 * @node: Possible node of a list.
 * @links: Gets its neighbors.
 *
 * Context: Any.
 * Return: True where they do, as in an empty list; also for a zeroed node.
 */
bool guardrail_links_return(const struct list_head *node, struct list_head *links);

/**
 * guardrail_is_list_sound() - Test a list of tasks that wait.
 * @head: The list's head, which may lie in a driver's memory.
 *
 * Such a task waits in a function of the kernel, so its node lies where no driver writes. A driver may change a list after it
 * was looked at; that race is not closed.
 *
 * Context: Any but NMI.
 * Return: True for a list whose nodes at both ends lead back to the head and are the kernel's; also for a zeroed one.
 */
bool guardrail_is_list_sound(const struct list_head *head);

/**
 * guardrail_is_first_sound() - Test the first of tasks that wait, where a lock has a pointer to it.
 * @place: Where the pointer is, which may lie in a driver's memory. A waiter begins with its node in a ring of them
 *	(kernel/locking/mutex.h, rwsem.c, semaphore.c).
 *
 * Context: Any but NMI.
 * Return: True where nobody waits, or the first is the kernel's and its neighbors lead back to it.
 */
bool guardrail_is_first_sound(const void *place);

/**
 * guardrail_is_lock_sound() - Test a lock that tasks sleep for.
 * @p: The lock.
 * @kind: A mutex or a semaphore for readers and writers, by enum guardrail_lock_kind; all others are sound.
 *
 * Context: Any but NMI.
 * Return: True where the kernel can follow its list, and its owner is a task.
 */
bool guardrail_is_lock_sound(unsigned long p, u32 kind);

#endif /* GUARDRAIL_DOMAIN_SOUND_H */
