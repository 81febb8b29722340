/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Resizable hash tables, whose buckets inlined functions write. */
#ifndef GUARDRAIL_CLASSES_RHASH_H
#define GUARDRAIL_CLASSES_RHASH_H

#include <linux/types.h>

/**
 * guardrail_is_bucket() - Test whether a store goes to a bucket of a domain's hash table.
 * @domain: Domain that stores.
 * @addr: First byte.
 * @n: Number of bytes.
 *
 * The kernel replaces the buckets by itself when a table grows, so they are looked up for each store.
 *
 * Context: Any but NMI.
 * Return: True where it does.
 */
bool guardrail_is_bucket(u32 domain, unsigned long addr, unsigned long n);

#endif /* GUARDRAIL_CLASSES_RHASH_H */
