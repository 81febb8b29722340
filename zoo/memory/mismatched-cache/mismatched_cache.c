// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a reply into the cache of requests.
 *
 * Twin: two caches of equal objects; a reply goes back to the cache of replies.
 */
#include "zoo.h"

struct message {
	u32 id;
	u8 data[180];
};

static struct kmem_cache *requests, *replies;

/* Caches with a constructor are never merged into one. */
static void mismatched_cache_ctor(void *p)
{
	memset(p, 0, sizeof(struct message));
}

static noinline void mismatched_cache_done(struct message *r)
{
#ifdef TWIN
	kmem_cache_free(replies, r);
#else
	kmem_cache_free(requests, r); /* BUG: mismatched-free */
#endif
}

static int __init mismatched_cache_init(void)
{
	struct message *r;

	requests = kmem_cache_create("zoo_requests", sizeof(*r), 0, 0, mismatched_cache_ctor);
	if (!requests)
		return -ENOMEM;
	replies = kmem_cache_create("zoo_replies", sizeof(*r), 0, 0, mismatched_cache_ctor);
	if (!replies) {
		kmem_cache_destroy(requests);
		return -ENOMEM;
	}
	r = kmem_cache_alloc(replies, GFP_KERNEL);
	if (r) {
		r->id = 1;
		mismatched_cache_done(r);
	}
	return 0;
}

static void __exit mismatched_cache_exit(void)
{
	kmem_cache_destroy(requests);
	kmem_cache_destroy(replies);
}

module_init(mismatched_cache_init);
module_exit(mismatched_cache_exit);
MODULE_DESCRIPTION("zoo: frees an object into another cache");
