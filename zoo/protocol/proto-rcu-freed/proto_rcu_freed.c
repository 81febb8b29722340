// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a route whose RCU callback is pending; the callback would do without it.
 *
 * Twin: frees a route in its RCU callback.
 */
#include "zoo.h"
#include <linux/rcupdate.h>

struct route {
	struct rcu_head rcu;
	unsigned int metric;
};

static struct kmem_cache *cache;
static struct route *route;

/* With a constructor, the cache is nobody else's, and freed objects keep their contents. */
static void proto_rcu_freed_construct(void *object)
{
	memset(object, 0, sizeof(struct route));
}

static noinline void proto_rcu_freed_reclaim(struct rcu_head *head)
{
#ifdef TWIN
	kmem_cache_free(cache, container_of(head, struct route, rcu));
#endif
}

static noinline void proto_rcu_freed_release(struct route *r)
{
	call_rcu(&r->rcu, proto_rcu_freed_reclaim);
#ifndef TWIN
	kmem_cache_free(cache, r); /* BUG: protocol-order */
#endif
}

static int __init proto_rcu_freed_init(void)
{
	cache = kmem_cache_create("proto_rcu_freed", sizeof(struct route), 0, 0, proto_rcu_freed_construct);
	if (!cache)
		return -ENOMEM;
	route = kmem_cache_alloc(cache, GFP_KERNEL);
	if (!route) {
		kmem_cache_destroy(cache);
		return -ENOMEM;
	}
	return 0;
}

static void __exit proto_rcu_freed_exit(void)
{
	proto_rcu_freed_release(route);
	rcu_barrier();
	kmem_cache_destroy(cache);
}

module_init(proto_rcu_freed_init);
module_exit(proto_rcu_freed_exit);
MODULE_DESCRIPTION("zoo: frees what holds a pending RCU callback");
