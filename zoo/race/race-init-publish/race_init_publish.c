// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Puts a session into a list under the lock and initializes it afterwards; a timer function walks
 * the list.
 *
 * Twin: initializes a session without the lock and puts it into a list under it; a timer function
 * walks the list.
 */
#include "race.h"

struct session {
	struct list_head list;
	unsigned long state;
};

static LIST_HEAD(sessions);
static DEFINE_SPINLOCK(lock);
static struct timer_list timer;

static noinline void race_init_publish_expire(struct timer_list *t)
{
	struct session *s;

	spin_lock(&lock);
	list_for_each_entry(s, &sessions, list)
		race_use(READ_ONCE(s->state)); /* OTHER: */
	spin_unlock(&lock);
	mod_timer(&timer, jiffies + 1);
}

static noinline void race_init_publish_add(struct session *s)
{
#ifdef TWIN
	WRITE_ONCE(s->state, 1);
#endif
	spin_lock_bh(&lock);
	list_add(&s->list, &sessions);
	spin_unlock_bh(&lock);
#ifndef TWIN
	WRITE_ONCE(s->state, 1); /* BUG: data-race */
#endif
}

static int __init race_init_publish_init(void)
{
	struct session *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (!s)
		return -ENOMEM;
	/* Walks the list before and after the session is in it. */
	timer_setup(&timer, race_init_publish_expire, 0);
	mod_timer(&timer, jiffies + 1);
	race_pause();
	race_init_publish_add(s);
	race_pause();
	return 0;
}

static void __exit race_init_publish_exit(void)
{
	timer_delete_sync(&timer);
	kfree(list_first_entry(&sessions, struct session, list));
}

module_init(race_init_publish_init);
module_exit(race_init_publish_exit);
MODULE_DESCRIPTION("zoo: publishes a session");
