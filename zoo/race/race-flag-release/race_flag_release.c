// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread sets a flag and only then stores its result; a timer function reads the result once the
 * flag is set.
 *
 * Twin: a thread stores its result and then sets the flag; a timer function reads it after that.
 */
#include "race.h"

static unsigned long result;
static int ready;
static struct timer_list timer;
static struct zoo_thread thread;

static noinline void race_flag_release_expire(struct timer_list *t)
{
	mod_timer(&timer, jiffies + 1);
	if (smp_load_acquire(&ready))
		race_use(READ_ONCE(result)); /* OTHER: */
}

static noinline void race_flag_release_produce(void)
{
	msleep(10);
#ifdef TWIN
	WRITE_ONCE(result, 42);
#endif
	smp_store_release(&ready, 1);
#ifndef TWIN
	WRITE_ONCE(result, 42); /* BUG: data-race */
#endif
}

static int __init race_flag_release_init(void)
{
	int err;

	timer_setup(&timer, race_flag_release_expire, 0);
	mod_timer(&timer, jiffies + 1);
	err = race_thread_start(&thread, race_flag_release_produce, 0);
	if (err)
		timer_delete_sync(&timer);
	else
		msleep(50);
	return err;
}

static void __exit race_flag_release_exit(void)
{
	zoo_thread_stop(&thread);
	timer_delete_sync(&timer);
}

module_init(race_flag_release_init);
module_exit(race_flag_release_exit);
MODULE_DESCRIPTION("zoo: hands a result over by a flag");
