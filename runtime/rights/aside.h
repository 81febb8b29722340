/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A look aside: with another address of the table, checks read tags that grant nothing, and so each asks its slow path.
 *
 * They read the tags of memory that lies ASIDE bytes below that of the store. No domain has rights there, as
 * guardrail_aside_prepare() finds out; what can be asked often is mapped to zeros, and elsewhere checks fault.
 */
#ifndef GUARDRAIL_RIGHTS_ASIDE_H
#define GUARDRAIL_RIGHTS_ASIDE_H

#include "base/kernel.h"

/* What guardrail_table is while checks are to ask their slow paths. */
extern unsigned long guardrail_aside;

/**
 * guardrail_aside_init() - Begin with an address with which each check faults.
 * @start: Address of the table's first tag.
 * @end: Address behind its last one.
 */
void __init guardrail_aside_init(unsigned long start, unsigned long end);

/**
 * guardrail_aside_prepare() - Map the zeros, unless they are there, or the kernel's memory lies too wide apart.
 *
 * Context: Process. Without memory, checks fault.
 */
void guardrail_aside_prepare(void);

/**
 * guardrail_is_aside() - Test for the part of the page tables that the zeros share.
 * @ptes: The lowest level of the page tables somewhere in the table.
 *
 * Return: True for that part.
 */
bool guardrail_is_aside(const void *ptes);

/**
 * guardrail_aside_exit() - Free that part, which is not in the page tables any more.
 */
void guardrail_aside_exit(void);

#endif /* GUARDRAIL_RIGHTS_ASIDE_H */
