// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer (softirq) takes a mutex; nobody else holds it, so that it does not sleep today.
 *
 * Twin: a timer (softirq) has a work item take the mutex.
 */
#include "zoo.h"

static DEFINE_MUTEX(lock);
static struct timer_list watchdog;

static noinline void lock_sleep_timer_check(void)
{
	mutex_lock(&lock); /* BUG: sleep-in-atomic */
	mutex_unlock(&lock);
}

#ifdef TWIN
static noinline void lock_sleep_timer_work(struct work_struct *work)
{
	lock_sleep_timer_check();
}

static DECLARE_WORK(check_work, lock_sleep_timer_work);

#endif
static noinline void lock_sleep_timer_expire(struct timer_list *t)
{
#ifdef TWIN
	schedule_work(&check_work);
#else
	lock_sleep_timer_check();
#endif
}

static int __init lock_sleep_timer_init(void)
{
	timer_setup(&watchdog, lock_sleep_timer_expire, 0);
	mod_timer(&watchdog, jiffies + msecs_to_jiffies(20));
	msleep(100);
	return 0;
}

static void __exit lock_sleep_timer_exit(void)
{
	timer_delete_sync(&watchdog);
#ifdef TWIN
	cancel_work_sync(&check_work);
#endif
}

module_init(lock_sleep_timer_init);
module_exit(lock_sleep_timer_exit);
MODULE_DESCRIPTION("zoo: takes a mutex in a timer");
