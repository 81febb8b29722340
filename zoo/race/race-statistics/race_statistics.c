// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer function and a thread count packets without a lock.
 *
 * Twin: a timer function and a thread count packets atomically.
 */
#include "race.h"

static struct {
#ifdef TWIN
	atomic_long_t rx_packets;
#else
	unsigned long rx_packets;
#endif
	unsigned long rx_errors;
} stats;
static struct timer_list timer;
static struct zoo_thread thread;

static noinline void race_statistics_expire(struct timer_list *t)
{
	mod_timer(&timer, jiffies + 1);
#ifdef TWIN
	atomic_long_inc(&stats.rx_packets);
#else
	stats.rx_packets++; /* OTHER: */
#endif
}

static noinline void race_statistics_receive(void)
{
#ifdef TWIN
	atomic_long_inc(&stats.rx_packets);
#else
	stats.rx_packets++; /* BUG: data-race */
#endif
}

static void race_statistics_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_statistics_receive();
		msleep(10);
	}
}

static int __init race_statistics_init(void)
{
	int err;

	timer_setup(&timer, race_statistics_expire, 0);
	mod_timer(&timer, jiffies + 1);
	err = race_thread_start(&thread, race_statistics_body, 0);
	if (err)
		timer_delete_sync(&timer);
	return err;
}

static void __exit race_statistics_exit(void)
{
	zoo_thread_stop(&thread);
	timer_delete_sync(&timer);
#ifdef TWIN
	race_use(atomic_long_read(&stats.rx_packets));
#else
	race_use(stats.rx_packets);
#endif
}

module_init(race_statistics_init);
module_exit(race_statistics_exit);
MODULE_DESCRIPTION("zoo: timer and thread count packets");
