// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer function wakes a process and then stores its result, which the process reads.
 *
 * Twin: a timer function stores its result and then wakes the process that reads it.
 */
#include "race.h"
#include <linux/wait.h>

static DECLARE_WAIT_QUEUE_HEAD(queue);
static atomic_t done;
static unsigned long result;
static struct timer_list timer;

static noinline void race_wait_queue_expire(struct timer_list *t)
{
#ifdef TWIN
	WRITE_ONCE(result, 42);
#endif
	atomic_inc(&done);
	wake_up(&queue);
#ifndef TWIN
	WRITE_ONCE(result, 42); /* BUG: data-race */
#endif
}

static noinline void race_wait_queue_take(void)
{
	wait_event(queue, atomic_read(&done));
	race_use(READ_ONCE(result)); /* OTHER: */
}

static int __init race_wait_queue_init(void)
{
	timer_setup(&timer, race_wait_queue_expire, 0);
	mod_timer(&timer, jiffies + msecs_to_jiffies(20));
	race_wait_queue_take();
	race_pause();
	return 0;
}

static void __exit race_wait_queue_exit(void)
{
	timer_delete_sync(&timer);
}

module_init(race_wait_queue_init);
module_exit(race_wait_queue_exit);
MODULE_DESCRIPTION("zoo: hands a result over by a wait queue");
