// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a request whose delayed work is pending, and then cancels the work.
 *
 * Twin: cancels the delayed work of a request, and then frees the request. It also frees a hash table, whose own work it
 * may have queued itself, in an inlined function: the kernel cancels that work.
 */
#include "zoo.h"
#include <linux/rhashtable.h>

struct request_state {
	struct delayed_work poll;
	unsigned int id;
	struct rhashtable table;
	struct request_entry {
		struct rhash_head node;
		u32 key;
	} entries[128];
};

static const struct rhashtable_params parameters = {
	.key_len = sizeof(u32),
	.key_offset = offsetof(struct request_entry, key),
	.head_offset = offsetof(struct request_entry, node),
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
	rhashtable_destroy(&r->table);
#endif
	kmem_cache_free(cache, r); /* BUG: protocol-order */
#ifndef TWIN
	cancel_delayed_work_sync(&r->poll);
#endif
}

#ifdef TWIN
/* So many entries that the table grows, in its work. */
static noinline int proto_work_freed_fill(struct request_state *r)
{
	int error = rhashtable_init(&r->table, &parameters);
	u32 i;

	if (error)
		return error;
	for (i = 0; !error && i < ARRAY_SIZE(r->entries); i++) {
		r->entries[i].key = i;
		error = rhashtable_insert_fast(&r->table, &r->entries[i].node, parameters);
	}
	if (error)
		rhashtable_destroy(&r->table);
	return error;
}
#else
static int proto_work_freed_fill(struct request_state *r)
{
	return 0;
}
#endif

static int __init proto_work_freed_init(void)
{
	int error;

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
	error = proto_work_freed_fill(request);
	if (error) {
		cancel_delayed_work_sync(&request->poll);
		kmem_cache_free(cache, request);
		kmem_cache_destroy(cache);
	}
	return error;
}

static void __exit proto_work_freed_exit(void)
{
	proto_work_freed_release(request);
	kmem_cache_destroy(cache);
}

module_init(proto_work_freed_init);
module_exit(proto_work_freed_exit);
MODULE_DESCRIPTION("zoo: frees what holds pending work");
