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
 * The kernel replaces the buckets by itself when a table grows, so they are looked up for each store. A store may still go to
 * buckets that were replaced, as far as a grace period keeps them.
 *
 * Context: Any but NMI.
 * Return: True where it does.
 */
bool guardrail_is_bucket(u32 domain, unsigned long addr, unsigned long n);

/**
 * guardrail_in_hash_table() - Test whether memory is a part of a domain's hash table.
 * @domain: The domain.
 * @p: First byte.
 * @n: Number of bytes.
 *
 * Of such a table the driver may write no more than the number of its elements; its work is the kernel's.
 *
 * Context: Any but NMI.
 * Return: True where all of it is.
 */
bool guardrail_in_hash_table(u32 domain, unsigned long p, unsigned long n);

#endif /* GUARDRAIL_CLASSES_RHASH_H */
