// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The session ends and is freed while its timer is pending, which then writes the time of expiry
 * into it.
 *
 * Twin: the session ends and is freed when its timer has expired, which writes the time of expiry
 * into it.
 */
#include "zoo.h"

struct session {
	unsigned int number;
	unsigned long expired;
};

static struct kmem_cache *sessions;
static struct session *session;
static struct timer_list expiry;
static DECLARE_COMPLETION(over);

/* A cache with a constructor is shared with nobody: what was freed stays as it was. */
static void kernel_timer_construct(void *session)
{
	memset(session, 0, sizeof(struct session));
}

static noinline void kernel_timer_expire(struct timer_list *t)
{
	WRITE_ONCE(session->expired, jiffies); /* BUG: use-after-free */
	complete(&over);
}

static int __init kernel_timer_init(void)
{
	sessions = kmem_cache_create("zoo_sessions", sizeof(struct session), 0, 0, kernel_timer_construct);
	if (!sessions)
		return -ENOMEM;
	session = kmem_cache_alloc(sessions, GFP_KERNEL);
	if (!session) {
		kmem_cache_destroy(sessions);
		return -ENOMEM;
	}
	timer_setup(&expiry, kernel_timer_expire, 0);
	mod_timer(&expiry, jiffies + 2);
#ifdef TWIN
	wait_for_completion_timeout(&over, 10 * HZ);
	timer_delete_sync(&expiry);
#endif
	kmem_cache_free(sessions, session);
#ifndef TWIN
	wait_for_completion_timeout(&over, 10 * HZ);
#endif
	return 0;
}

static void __exit kernel_timer_exit(void)
{
	timer_delete_sync(&expiry);
	kmem_cache_destroy(sessions);
}

module_init(kernel_timer_init);
module_exit(kernel_timer_exit);
MODULE_DESCRIPTION("zoo: a timer writes into a session that was freed");
