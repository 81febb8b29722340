/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Addresses in the kernel's half of the address space, and reads of memory that may not be there. */
#ifndef GUARDRAIL_BASE_ADDRESS_H
#define GUARDRAIL_BASE_ADDRESS_H

#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/workqueue.h>

#include "base/kernel.h"

/* Where the kernel's half begins; guardrail_symbols_find() sets it. */
extern unsigned long guardrail_kernel_half;
#define KERNEL_HALF guardrail_kernel_half

/**
 * is_kernel_range() - Test for a range in the kernel's half.
 * @p: First byte.
 * @n: Number of bytes.
 *
 * Return: True for one byte or more that all lie in the kernel's half.
 */
static inline bool is_kernel_range(unsigned long p, unsigned long n)
{
	return p >= KERNEL_HALF && n && p + n - 1 >= p;
}

/**
 * load_word() - Read a word that may not be there.
 * @addr: Address in the kernel's half.
 * @word: Gets the word, or 0.
 *
 * Context: Any.
 * Return: False where nothing can be read.
 */
static __always_inline bool load_word(unsigned long addr, unsigned long *word)
{
	unsigned long value = 0;
	u32 failed = 1;

	asm volatile("1:	movq	(%2), %0\n"
		     "	xorl	%1, %1\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "+r" (value), "+r" (failed) : "r" (addr) : "cc", "memory");
	*word = value;
	return !failed;
}

/**
 * pointer_at() - Read a pointer that may not be there.
 * @p: Its address, anywhere.
 *
 * Context: Any.
 * Return: The pointer; NULL where it lies in user space or nothing can be read.
 */
static __always_inline void *pointer_at(const void *p)
{
	unsigned long word;

	return (unsigned long)p >= KERNEL_HALF && load_word((unsigned long)p, &word) ? (void *)word : NULL;
}

/**
 * guardrail_links_of() - Read the links of what may be a node of a list.
 * @node: Possible node.
 * @links: Gets its neighbors.
 *
 * Context: Any.
 * Return: False where nothing can be read.
 */
static inline bool guardrail_links_of(const struct list_head *node, struct list_head *links)
{
	return is_kernel_range((unsigned long)node, sizeof(*node)) &&
	       load_word((unsigned long)&node->next, (unsigned long *)&links->next) &&
	       load_word((unsigned long)&node->prev, (unsigned long *)&links->prev);
}

/**
 * guardrail_is_delayed() - Test for work that has a timer.
 * @work: Work; anything may lie behind it.
 *
 * Context: Any.
 * Return: True where it is the work of a struct delayed_work.
 */
static inline bool guardrail_is_delayed(struct work_struct *work)
{
	unsigned long function;

	return load_word((unsigned long)&container_of(work, struct delayed_work, work)->timer.function, &function) &&
	       function == (unsigned long)delayed_work_timer_fn;
}

/**
 * guardrail_rcu_is_over() - Test whether a grace period has ended.
 * @head: Address of the struct rcu_head that call_rcu() was given.
 *
 * Return: True once the kernel has begun to call the function: it clears the pointer first.
 */
static inline bool guardrail_rcu_is_over(unsigned long head)
{
	return !READ_ONCE(((struct rcu_head *)head)->func);
}

#endif /* GUARDRAIL_BASE_ADDRESS_H */
