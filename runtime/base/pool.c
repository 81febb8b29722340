// SPDX-License-Identifier: GPL-2.0-or-later
/* Pools of small objects; base/pool.h describes them. */
#include <linux/slab.h>

#include "base/pool.h"

int __init guardrail_pool_init(struct guardrail_pool *pool, const char *name, size_t size, int reserve)
{
	pool->cache = kmem_cache_create(name, size, 0, 0, NULL);
	if (!pool->cache)
		return -ENOMEM;
	pool->reserve = mempool_create_slab_pool(reserve, pool->cache);
	if (!pool->reserve) {
		kmem_cache_destroy(pool->cache);
		return -ENOMEM;
	}
	return 0;
}

void guardrail_pool_exit(struct guardrail_pool *pool)
{
	mempool_destroy(pool->reserve);
	kmem_cache_destroy(pool->cache);
}

void *guardrail_pool_alloc(struct guardrail_pool *pool)
{
	return mempool_alloc(pool->reserve, GFP_ATOMIC | __GFP_NOWARN);
}

void guardrail_pool_free(struct guardrail_pool *pool, void *object)
{
	mempool_free(object, pool->reserve);
}
