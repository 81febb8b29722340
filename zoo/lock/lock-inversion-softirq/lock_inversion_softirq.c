// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer (softirq) takes the spin lock that the task takes with softirqs on.
 *
 * Twin: a timer (softirq) takes the spin lock that the task takes with softirqs off.
 */
#include "zoo.h"

static DEFINE_SPINLOCK(stats_lock);
static unsigned long stats;
static struct timer_list sampler;

static noinline void lock_inversion_softirq_sample(struct timer_list *t)
{
	spin_lock(&stats_lock);
	stats++;
	spin_unlock(&stats_lock);
}

static noinline void lock_inversion_softirq_read(void)
{
#ifdef TWIN
	spin_lock_bh(&stats_lock);
#else
	spin_lock(&stats_lock); /* BUG: irq-inversion */
#endif
	stats = 0;
#ifdef TWIN
	spin_unlock_bh(&stats_lock);
#else
	spin_unlock(&stats_lock);
#endif
}

static int __init lock_inversion_softirq_init(void)
{
	timer_setup(&sampler, lock_inversion_softirq_sample, 0);
	/* Before the timer runs for the first time, so that it does not come meanwhile. */
	lock_inversion_softirq_read();
	mod_timer(&sampler, jiffies + msecs_to_jiffies(20));
	msleep(100);
	return 0;
}

static void __exit lock_inversion_softirq_exit(void)
{
	timer_delete_sync(&sampler);
}

module_init(lock_inversion_softirq_init);
module_exit(lock_inversion_softirq_exit);
MODULE_DESCRIPTION("zoo: takes a timer's lock with softirqs on");
