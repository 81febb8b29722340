// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer returns with its spin lock held; the kernel mends the preemption count and warns.
 *
 * Twin: a timer gives its spin lock back before it returns.
 */
#include "zoo.h"

static DEFINE_SPINLOCK(lock);
static unsigned int pending;
static struct timer_list expiry;

static noinline void lock_held_timer_expire(struct timer_list *t)
{
	spin_lock(&lock); /* BUG: lock-held-at-return */
#ifdef TWIN
	if (!READ_ONCE(pending)) {
		spin_unlock(&lock);
#else
	if (!READ_ONCE(pending))
#endif
		return;
#ifdef TWIN
	}
#endif
	WRITE_ONCE(pending, 0);
	spin_unlock(&lock);
}

static int __init lock_held_timer_init(void)
{
	timer_setup(&expiry, lock_held_timer_expire, 0);
	mod_timer(&expiry, jiffies + msecs_to_jiffies(20));
	msleep(100);
	return 0;
}

static void __exit lock_held_timer_exit(void)
{
	timer_delete_sync(&expiry);
}

module_init(lock_held_timer_init);
module_exit(lock_held_timer_exit);
MODULE_DESCRIPTION("zoo: returns from a timer with a spin lock held");
