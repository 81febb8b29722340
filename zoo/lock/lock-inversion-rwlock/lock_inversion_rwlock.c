// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer reads under the lock that the task takes for writing with softirqs on; reading with
 * softirqs on is right.
 *
 * Twin: a timer reads under the lock that the task takes for writing with softirqs off; reading
 * with softirqs on is right.
 */
#include "zoo.h"

static DEFINE_RWLOCK(route_lock);
static unsigned long route;
static struct timer_list prober;

static noinline void lock_inversion_rwlock_probe(struct timer_list *t)
{
	read_lock(&route_lock);
	zoo_sink = READ_ONCE(route);
	read_unlock(&route_lock);
}

static noinline unsigned long lock_inversion_rwlock_lookup(void)
{
	unsigned long found;

	read_lock(&route_lock);
	found = READ_ONCE(route);
	read_unlock(&route_lock);
	return found;
}

static noinline void lock_inversion_rwlock_replace(unsigned long next)
{
#ifdef TWIN
	write_lock_bh(&route_lock);
#else
	write_lock(&route_lock); /* BUG: irq-inversion */
#endif
	WRITE_ONCE(route, next);
#ifdef TWIN
	write_unlock_bh(&route_lock);
#else
	write_unlock(&route_lock);
#endif
}

static int __init lock_inversion_rwlock_init(void)
{
	timer_setup(&prober, lock_inversion_rwlock_probe, 0);
	/* Before the timer runs for the first time, so that it does not come meanwhile. */
	lock_inversion_rwlock_replace(lock_inversion_rwlock_lookup() + 1);
	mod_timer(&prober, jiffies + msecs_to_jiffies(20));
	msleep(100);
	return 0;
}

static void __exit lock_inversion_rwlock_exit(void)
{
	timer_delete_sync(&prober);
}

module_init(lock_inversion_rwlock_init);
module_exit(lock_inversion_rwlock_exit);
MODULE_DESCRIPTION("zoo: takes a lock for writing with softirqs on that a timer takes for reading");
