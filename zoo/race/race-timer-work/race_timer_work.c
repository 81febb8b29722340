// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer function counts if it gets the semaphore; a work item counts without.
 *
 * Twin: a timer function counts if it gets the semaphore; a work item waits for it.
 */
#include "race.h"
#include <linux/semaphore.h>

static struct semaphore sem;
static struct timer_list timer;
static unsigned long count;

static noinline void race_timer_work_expire(struct timer_list *t)
{
	if (down_trylock(&sem))
		return;
	count++; /* OTHER: */
	up(&sem);
}

static noinline void race_timer_work_run(struct work_struct *work)
{
#ifdef TWIN
	down(&sem);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	up(&sem);
#endif
}

static DECLARE_WORK(work, race_timer_work_run);

static int __init race_timer_work_init(void)
{
	int i;

	sema_init(&sem, 1);
	timer_setup(&timer, race_timer_work_expire, 0);
	for (i = 0; i < 3; i++) {
		mod_timer(&timer, jiffies + 1);
		schedule_work(&work);
		race_pause();
	}
	return 0;
}

static void __exit race_timer_work_exit(void)
{
	timer_delete_sync(&timer);
	cancel_work_sync(&work);
	race_use(count);
}

module_init(race_timer_work_init);
module_exit(race_timer_work_exit);
MODULE_DESCRIPTION("zoo: timer and work item share a counter");
