/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rights to pages that drivers allocate. */
#ifndef GUARDRAIL_CLASSES_MEMORY_H
#define GUARDRAIL_CLASSES_MEMORY_H

#include <linux/types.h>

struct page;

/**
 * guardrail_page_give() - Grant pages, and the reference count that inlined functions change.
 * @domain: Domain that gets them.
 * @page: The first page.
 * @size: Their size in bytes.
 *
 * Context: Any but NMI.
 * Return: 0, -EINVAL or -ENOMEM.
 */
int guardrail_page_give(u32 domain, struct page *page, unsigned long size);

/**
 * guardrail_page_take() - Revoke what guardrail_page_give() granted.
 * @domain: Domain that has the pages.
 * @page: The first page.
 *
 * Context: Any but NMI.
 */
void guardrail_page_take(u32 domain, struct page *page);

#endif /* GUARDRAIL_CLASSES_MEMORY_H */
