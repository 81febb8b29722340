// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a session whose timer is pending, and then deletes the timer.
 *
 * Twin: deletes the timer of a session, and then frees the session.
 */
#include "zoo.h"

struct session {
	struct timer_list expiry;
	unsigned int id;
};

static struct kmem_cache *cache;
static struct session *session;

/* With a constructor, the cache is nobody else's, and freed objects keep their contents. */
static void proto_timer_freed_construct(void *object)
{
	memset(object, 0, sizeof(struct session));
}

static void proto_timer_freed_expire(struct timer_list *t)
{
}

static noinline void proto_timer_freed_release(struct session *s)
{
#ifdef TWIN
	timer_delete_sync(&s->expiry);
#endif
	kmem_cache_free(cache, s); /* BUG: protocol-order */
#ifndef TWIN
	timer_delete_sync(&s->expiry);
#endif
}

static int __init proto_timer_freed_init(void)
{
	cache = kmem_cache_create("proto_timer_freed", sizeof(struct session), 0, 0, proto_timer_freed_construct);
	if (!cache)
		return -ENOMEM;
	session = kmem_cache_alloc(cache, GFP_KERNEL);
	if (!session) {
		kmem_cache_destroy(cache);
		return -ENOMEM;
	}
	timer_setup(&session->expiry, proto_timer_freed_expire, 0);
	mod_timer(&session->expiry, jiffies + 3600 * HZ);
	return 0;
}

static void __exit proto_timer_freed_exit(void)
{
	proto_timer_freed_release(session);
	kmem_cache_destroy(cache);
}

module_init(proto_timer_freed_init);
module_exit(proto_timer_freed_exit);
MODULE_DESCRIPTION("zoo: frees what holds a pending timer");
