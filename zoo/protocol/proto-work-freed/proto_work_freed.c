// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a request whose delayed work is pending, and then cancels the work.
 *
 * Twin: cancels the delayed work of a request, and then frees the request.
 */
#include "zoo.h"

struct request_state {
	struct delayed_work poll;
	unsigned int id;
};

static struct kmem_cache *cache;
static struct request_state *request;

/* With a constructor, the cache is nobody else's, and freed objects keep their contents. */
static void proto_work_freed_construct(void *object)
{
	memset(object, 0, sizeof(struct request_state));
}

static void proto_work_freed_poll(struct work_struct *work)
{
}

static noinline void proto_work_freed_release(struct request_state *r)
{
#ifdef TWIN
	cancel_delayed_work_sync(&r->poll);
#endif
	kmem_cache_free(cache, r); /* BUG: protocol-order */
#ifndef TWIN
	cancel_delayed_work_sync(&r->poll);
#endif
}

static int __init proto_work_freed_init(void)
{
	cache = kmem_cache_create("proto_work_freed", sizeof(struct request_state), 0, 0, proto_work_freed_construct);
	if (!cache)
		return -ENOMEM;
	request = kmem_cache_alloc(cache, GFP_KERNEL);
	if (!request) {
		kmem_cache_destroy(cache);
		return -ENOMEM;
	}
	INIT_DELAYED_WORK(&request->poll, proto_work_freed_poll);
	schedule_delayed_work(&request->poll, 3600 * HZ);
	return 0;
}

static void __exit proto_work_freed_exit(void)
{
	proto_work_freed_release(request);
	kmem_cache_destroy(cache);
}

module_init(proto_work_freed_init);
module_exit(proto_work_freed_exit);
MODULE_DESCRIPTION("zoo: frees what holds pending work");
