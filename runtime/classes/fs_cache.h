/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The page cache of file systems, in which they write by inlined code. */
#ifndef GUARDRAIL_CLASSES_FS_CACHE_H
#define GUARDRAIL_CLASSES_FS_CACHE_H

#include <linux/types.h>

/**
 * guardrail_is_fs_cache() - Test whether a store goes to the page cache of a domain's file system.
 * @domain: Domain that stores.
 * @addr: First byte.
 * @n: Number of bytes.
 *
 * Pages are found, looked up and given back in many ways, and the kernel frees them by itself. So nothing is granted:
 * each store is judged by what the kernel knows of the page at this moment. A page is the domain's while it caches a
 * file of one of the domain's file systems, or the device that one is mounted from. With it come its flags, its
 * count of references, and the buffers that are attached to it.
 *
 * Context: Any but NMI.
 * Return: True where the store is to the cache.
 */
bool guardrail_is_fs_cache(u32 domain, unsigned long addr, unsigned long n);

#endif /* GUARDRAIL_CLASSES_FS_CACHE_H */
