// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A tasklet counts under an outer and an inner lock, a timer function under another inner lock
 * alone.
 *
 * Twin: a tasklet and a timer function count under an outer and an inner lock.
 */
#include "race.h"

static DEFINE_SPINLOCK(outer);
static spinlock_t inner[2];
static struct timer_list timer;
static unsigned long count;

static noinline void race_softirq_timer_run(struct tasklet_struct *t)
{
	spin_lock(&outer);
	spin_lock_nested(&inner[0], SINGLE_DEPTH_NESTING);
	count++; /* OTHER: */
	spin_unlock(&inner[0]);
	spin_unlock(&outer);
}

static DECLARE_TASKLET(tasklet, race_softirq_timer_run);

static noinline void race_softirq_timer_expire(struct timer_list *t)
{
#ifdef TWIN
	spin_lock(&outer);
#endif
	spin_lock_nested(&inner[1], SINGLE_DEPTH_NESTING);
	count++; /* BUG: data-race */
	spin_unlock(&inner[1]);
#ifdef TWIN
	spin_unlock(&outer);
#endif
}

static int __init race_softirq_timer_init(void)
{
	int i;

	spin_lock_init(&inner[0]);
	spin_lock_init(&inner[1]);
	timer_setup(&timer, race_softirq_timer_expire, 0);
	for (i = 0; i < 3; i++) {
		mod_timer(&timer, jiffies + 1);
		tasklet_schedule(&tasklet);
		race_pause();
	}
	return 0;
}

static void __exit race_softirq_timer_exit(void)
{
	timer_delete_sync(&timer);
	tasklet_kill(&tasklet);
	race_use(count);
}

module_init(race_softirq_timer_init);
module_exit(race_softirq_timer_exit);
MODULE_DESCRIPTION("zoo: tasklet and timer share a counter");
