/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The memory of the rights table. */
#ifndef GUARDRAIL_RIGHTS_TABLE_H
#define GUARDRAIL_RIGHTS_TABLE_H

#include "rights/tag.h"

/**
 * guardrail_table_init() - Reserve addresses for the table and fill the reserve of pages.
 *
 * Context: May sleep.
 * Return: 0, or an error that the log explains.
 */
int __init guardrail_table_init(void);

/**
 * guardrail_table_exit() - Free the table, which no code uses any more.
 *
 * Context: May sleep.
 */
void guardrail_table_exit(void);

/**
 * guardrail_populate() - Give tags memory where they have none.
 * @first: Address of the first tag.
 * @last: Address of the last tag.
 *
 * Context: Any but NMI.
 * Return: 0, or -ENOMEM.
 */
int guardrail_populate(unsigned long first, unsigned long last);

/**
 * guardrail_table_share() - Give tags that nobody ever has a right to the memory of others.
 * @first: Address of the first tag.
 * @last: Address of the last tag.
 * @ptes: The lowest level of the page tables for each piece of it.
 *
 * Context: Process.
 * Return: 0, or -ENOMEM.
 */
int guardrail_table_share(unsigned long first, unsigned long last, void *ptes);

/**
 * guardrail_table_usage() - Count the pages of the table.
 * @usage: Gets table_pages, tree_pages and reserve.
 */
void guardrail_table_usage(struct guardrail_usage *usage);

/**
 * guardrail_dry() - Count the times that the reserve was empty.
 *
 * Return: The count since the module was loaded.
 */
unsigned long guardrail_dry(void);

/**
 * guardrail_each_page() - Visit all populated pages of the table by address.
 * @each: Called with the address of a page; a result other than 0 ends the walk.
 * @data: Passed to @each.
 *
 * Context: May sleep. No lock is held when @each is called.
 * Return: 0, or what @each returned.
 */
int guardrail_each_page(int (*each)(unsigned long page, void *data), void *data);

/**
 * populate() - Give tags memory; quick where they have it already.
 * @first: Address of the first tag.
 * @last: Address of the last tag.
 *
 * Context: Any but NMI.
 * Return: 0, or -ENOMEM.
 */
static inline int populate(unsigned long first, unsigned long last)
{
	if (likely(!((first ^ last) & PAGE_MASK) && tag_peek(first) >= 0))
		return 0;
	return guardrail_populate(first, last);
}

#endif /* GUARDRAIL_RIGHTS_TABLE_H */
