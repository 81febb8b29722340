// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A tasklet counts while it holds a bit; a work item only keeps softirqs off.
 *
 * Twin: a tasklet and a work item count while they hold a bit.
 */
#include "race.h"

static unsigned long busy;
static unsigned long count;

static noinline void race_softirq_work_run(struct tasklet_struct *t)
{
	if (test_and_set_bit_lock(0, &busy))
		return;
	count++; /* OTHER: */
	clear_bit_unlock(0, &busy);
}

static DECLARE_TASKLET(tasklet, race_softirq_work_run);

static noinline void race_softirq_work_work(struct work_struct *work)
{
	local_bh_disable();
#ifdef TWIN
	while (test_and_set_bit_lock(0, &busy))
		cpu_relax();
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	clear_bit_unlock(0, &busy);
#endif
	local_bh_enable();
}

static DECLARE_WORK(work, race_softirq_work_work);

static int __init race_softirq_work_init(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		tasklet_schedule(&tasklet);
		schedule_work(&work);
		race_pause();
	}
	return 0;
}

static void __exit race_softirq_work_exit(void)
{
	cancel_work_sync(&work);
	tasklet_kill(&tasklet);
	race_use(count);
}

module_init(race_softirq_work_init);
module_exit(race_softirq_work_exit);
MODULE_DESCRIPTION("zoo: tasklet and work item share a counter");
