// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer function and a process count, each under a lock of its own.
 *
 * Twin: a timer function counts if it gets the lock; a process waits for it.
 */
#include "race.h"

static DEFINE_SPINLOCK(lock);
#ifndef TWIN
static DEFINE_SPINLOCK(timer_lock);
#endif
static struct timer_list timer;
static unsigned long count;

static noinline void race_process_timer_expire(struct timer_list *t)
{
	mod_timer(&timer, jiffies + msecs_to_jiffies(5));
#ifdef TWIN
	if (!spin_trylock(&lock))
#else
	if (!spin_trylock(&timer_lock))
#endif
		return;
	count++; /* OTHER: */
#ifdef TWIN
	spin_unlock(&lock);
#else
	spin_unlock(&timer_lock);
#endif
}

static noinline void race_process_timer_add(void)
{
	spin_lock_bh(&lock);
	count++; /* BUG: data-race */
	spin_unlock_bh(&lock);
}

static int __init race_process_timer_init(void)
{
	int i;

	timer_setup(&timer, race_process_timer_expire, 0);
	mod_timer(&timer, jiffies + 1);
	for (i = 0; i < 3; i++) {
		race_process_timer_add();
		race_pause();
	}
	return 0;
}

static void __exit race_process_timer_exit(void)
{
	timer_delete_sync(&timer);
	race_use(count);
}

module_init(race_process_timer_init);
module_exit(race_process_timer_exit);
MODULE_DESCRIPTION("zoo: process and timer share a counter");
