// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer function moves a clock in a sequence; a thread reads it whatever the sequence is.
 *
 * Twin: a timer function moves a clock in a sequence; a thread reads it until it was not moved
 * meanwhile.
 */
#include "race.h"
#include <linux/seqlock.h>

static DEFINE_SEQLOCK(lock);
static unsigned long clock[2];
static struct timer_list timer;
static struct zoo_thread thread;

static noinline void race_timer_kthread_expire(struct timer_list *t)
{
	write_seqlock(&lock);
	clock[0]++;
	clock[1]++; /* OTHER: */
	write_sequnlock(&lock);
	mod_timer(&timer, jiffies + 1);
}

static noinline void race_timer_kthread_look(void)
{
	unsigned long now;
#ifdef TWIN
	unsigned int seq;
#endif

#ifdef TWIN
	do {
		seq = read_seqbegin(&lock);
		now = READ_ONCE(clock[1]);
	} while (read_seqretry(&lock, seq));
#else
	now = READ_ONCE(clock[1]); /* BUG: data-race */
#endif
	race_use(now);
}

static void race_timer_kthread_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_timer_kthread_look();
		msleep(10);
	}
}

static int __init race_timer_kthread_init(void)
{
	timer_setup(&timer, race_timer_kthread_expire, 0);
	mod_timer(&timer, jiffies + 1);
	return race_thread_start(&thread, race_timer_kthread_body, 0);
}

static void __exit race_timer_kthread_exit(void)
{
	zoo_thread_stop(&thread);
	timer_delete_sync(&timer);
	race_use(clock[0] + clock[1]);
}

module_init(race_timer_kthread_init);
module_exit(race_timer_kthread_exit);
MODULE_DESCRIPTION("zoo: timer and thread share a clock");
