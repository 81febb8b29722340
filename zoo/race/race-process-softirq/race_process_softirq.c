// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A tasklet counts under a lock; the process that schedules it counts without.
 *
 * Twin: a tasklet counts under a lock; the process that schedules it takes it with softirqs off.
 */
#include "race.h"

static DEFINE_SPINLOCK(lock);
static unsigned long count;

static noinline void race_process_softirq_run(struct tasklet_struct *t)
{
	spin_lock(&lock);
	count++; /* OTHER: */
	spin_unlock(&lock);
}

static DECLARE_TASKLET(tasklet, race_process_softirq_run);

static noinline void race_process_softirq_add(void)
{
#ifdef TWIN
	spin_lock_bh(&lock);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	spin_unlock_bh(&lock);
#endif
}

static int __init race_process_softirq_init(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		tasklet_schedule(&tasklet);
		race_process_softirq_add();
		race_pause();
	}
	return 0;
}

static void __exit race_process_softirq_exit(void)
{
	tasklet_kill(&tasklet);
	race_use(count);
}

module_init(race_process_softirq_init);
module_exit(race_process_softirq_exit);
MODULE_DESCRIPTION("zoo: process and tasklet share a counter");
