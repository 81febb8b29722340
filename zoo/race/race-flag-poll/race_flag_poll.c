// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread polls a flag without the lock and looks again under it; a timer function sets it under
 * the lock.
 *
 * Twin: a thread polls under the lock a flag that a timer function sets under it.
 */
#include "race.h"

static DEFINE_SPINLOCK(lock);
static bool done;
static struct timer_list timer;
static struct zoo_thread thread;

static noinline void race_flag_poll_expire(struct timer_list *t)
{
	spin_lock(&lock);
	WRITE_ONCE(done, true); /* OTHER: */
	spin_unlock(&lock);
}

static noinline bool race_flag_poll_poll(void)
{
	bool seen;

#ifndef TWIN
	if (!READ_ONCE(done)) /* BUG: data-race */
		return false;
#endif
	spin_lock_bh(&lock);
	seen = READ_ONCE(done);
	spin_unlock_bh(&lock);
	return seen;
}

static void race_flag_poll_body(void)
{
	while (!race_flag_poll_poll())
		msleep(5);
}

static int __init race_flag_poll_init(void)
{
	int err;

	timer_setup(&timer, race_flag_poll_expire, 0);
	mod_timer(&timer, jiffies + msecs_to_jiffies(20));
	err = race_thread_start(&thread, race_flag_poll_body, 0);
	if (err)
		timer_delete_sync(&timer);
	else
		msleep(50);
	return err;
}

static void __exit race_flag_poll_exit(void)
{
	zoo_thread_stop(&thread);
	timer_delete_sync(&timer);
}

module_init(race_flag_poll_init);
module_exit(race_flag_poll_exit);
MODULE_DESCRIPTION("zoo: polls a flag");
