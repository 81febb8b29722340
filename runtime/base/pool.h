/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Objects of one size for contexts that cannot sleep: a slab cache with some objects in reserve. */
#ifndef GUARDRAIL_BASE_POOL_H
#define GUARDRAIL_BASE_POOL_H

#include "base/kernel.h"

/**
 * struct guardrail_pool - Allocator of small objects of one size.
 * @cache: Slab cache that all objects come from.
 * @reserve: Objects that serve when the slab allocator has no memory.
 */
struct guardrail_pool {
	struct kmem_cache *cache;
	mempool_t *reserve;
};

/**
 * guardrail_pool_init() - Set up a pool.
 * @pool: Pool to set up.
 * @name: Name of the slab cache; must stay valid.
 * @size: Bytes in one object.
 * @reserve: How many objects stay in reserve.
 *
 * Context: May sleep.
 * Return: 0, or -ENOMEM.
 */
int __init guardrail_pool_init(struct guardrail_pool *pool, const char *name, size_t size, int reserve);

/**
 * guardrail_pool_exit() - Free a pool whose objects are all free.
 * @pool: Pool to free.
 *
 * Context: May sleep.
 */
void guardrail_pool_exit(struct guardrail_pool *pool);

/**
 * guardrail_pool_alloc() - Allocate an object.
 * @pool: Pool to allocate from.
 *
 * Context: Any but NMI.
 * Return: The object, not zeroed, or NULL where neither the allocator nor the reserve has one.
 */
void *guardrail_pool_alloc(struct guardrail_pool *pool);

/**
 * guardrail_pool_free() - Free an object.
 * @pool: Pool that the object is from.
 * @object: Object to free.
 *
 * Context: Any but NMI.
 */
void guardrail_pool_free(struct guardrail_pool *pool, void *object);

#endif /* GUARDRAIL_BASE_POOL_H */
