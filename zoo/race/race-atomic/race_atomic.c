// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer function counts atomically what a thread counts with a plain addition.
 *
 * Twin: a timer function and a thread count atomically.
 */
#include "race.h"

static atomic_long_t count;
static struct timer_list timer;
static struct zoo_thread thread;

static noinline void race_atomic_expire(struct timer_list *t)
{
	mod_timer(&timer, jiffies + 1);
	atomic_long_inc(&count); /* OTHER: */
}

static noinline void race_atomic_add(void)
{
#ifdef TWIN
	atomic_long_inc(&count);
#else
	*(unsigned long *)&count += 1; /* BUG: data-race */
#endif
}

static void race_atomic_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_atomic_add();
		msleep(10);
	}
}

static int __init race_atomic_init(void)
{
	int err;

	timer_setup(&timer, race_atomic_expire, 0);
	mod_timer(&timer, jiffies + 1);
	err = race_thread_start(&thread, race_atomic_body, 0);
	if (err)
		timer_delete_sync(&timer);
	return err;
}

static void __exit race_atomic_exit(void)
{
	zoo_thread_stop(&thread);
	timer_delete_sync(&timer);
	race_use(atomic_long_read(&count));
}

module_init(race_atomic_init);
module_exit(race_atomic_exit);
MODULE_DESCRIPTION("zoo: timer and thread share an atomic counter");
