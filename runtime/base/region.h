/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which piece of memory an address lies in: one object of the allocator, one variable, or one page. */
#ifndef GUARDRAIL_BASE_REGION_H
#define GUARDRAIL_BASE_REGION_H

#include "base/kernel.h"

/**
 * struct guardrail_region - A piece of memory.
 * @start: Its first byte.
 * @end: The byte behind its last.
 */
struct guardrail_region {
	unsigned long start, end;
};

/**
 * guardrail_region_init() - Find out how this kernel describes objects of its allocator.
 *
 * Context: Process, after guardrail_symbols_find().
 * Return: 0, or -ENODEV after the log says what is missing.
 */
int __init guardrail_region_init(void);

/**
 * guardrail_region_of() - Find the piece of memory that has an address.
 * @addr: The address.
 * @region: Gets the object of a slab, the variable or function, the pages that were allocated together, or the page.
 *
 * The allocator may free the object meanwhile.
 *
 * Context: Any but NMI.
 * Return: False where no memory is known to be there.
 */
bool guardrail_region_of(unsigned long addr, struct guardrail_region *region);

/**
 * guardrail_is_memory() - Test for an address that can be read without effects.
 * @addr: The address.
 *
 * Memory of devices lies in the area of virtual mappings, and reads there can have effects. So that area does not count,
 * but for the stack that is in use.
 *
 * Context: Any but NMI.
 * Return: True for memory of the kernel's linear mapping, its image, modules, and the current stack.
 */
bool guardrail_is_memory(unsigned long addr);

#endif /* GUARDRAIL_BASE_REGION_H */
