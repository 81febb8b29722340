// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A route and its statistics go; the RCU callback reads the statistics, which were freed without
 * waiting.
 *
 * Twin: a route and its statistics go; the RCU callback reads the statistics and frees both.
 */
#include <linux/rcupdate.h>
#include "zoo.h"

struct statistics {
	unsigned long packets;
	unsigned long bytes;
};

struct route {
	struct rcu_head rcu;
	struct statistics *statistics;
};

static struct kmem_cache *all_statistics;

/* A cache with a constructor is shared with nobody: what was freed stays as it was. */
static void kernel_rcu_construct(void *statistics)
{
	memset(statistics, 0, sizeof(struct statistics));
}

static noinline void kernel_rcu_release(struct rcu_head *head)
{
	struct route *route = container_of(head, struct route, rcu);

	zoo_sink = READ_ONCE(route->statistics->packets); /* BUG: use-after-free */
#ifdef TWIN
	kmem_cache_free(all_statistics, route->statistics);
#endif
	kfree(route);
}

static int __init kernel_rcu_init(void)
{
	struct route *route;

	all_statistics = kmem_cache_create("zoo_statistics", sizeof(struct statistics), 0, 0, kernel_rcu_construct);
	if (!all_statistics)
		return -ENOMEM;
	route = kzalloc(sizeof(*route), GFP_KERNEL);
	if (!route)
		goto destroy;
	route->statistics = kmem_cache_alloc(all_statistics, GFP_KERNEL);
	if (!route->statistics)
		goto free;
	call_rcu(&route->rcu, kernel_rcu_release);
#ifndef TWIN
	kmem_cache_free(all_statistics, route->statistics);
#endif
	rcu_barrier();
	return 0;
free:
	kfree(route);
destroy:
	kmem_cache_destroy(all_statistics);
	return -ENOMEM;
}

static void __exit kernel_rcu_exit(void)
{
	kmem_cache_destroy(all_statistics);
}

module_init(kernel_rcu_init);
module_exit(kernel_rcu_exit);
MODULE_DESCRIPTION("zoo: an RCU callback reads statistics that were freed");
