// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread changes a setting under a read/write lock; a tasklet reads it without.
 *
 * Twin: a thread changes a setting under a read/write lock; a tasklet takes it for reading.
 */
#include "race.h"

static DEFINE_RWLOCK(lock);
static unsigned long setting;
static struct zoo_thread thread;

static noinline void race_softirq_kthread_run(struct tasklet_struct *t)
{
#ifdef TWIN
	read_lock(&lock);
#endif
	race_use(setting); /* BUG: data-race */
#ifdef TWIN
	read_unlock(&lock);
#endif
}

static DECLARE_TASKLET(tasklet, race_softirq_kthread_run);

static noinline void race_softirq_kthread_change(void)
{
	write_lock_bh(&lock);
	setting++; /* OTHER: */
	write_unlock_bh(&lock);
}

static void race_softirq_kthread_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_softirq_kthread_change();
		msleep(10);
	}
}

static int __init race_softirq_kthread_init(void)
{
	int i, err = race_thread_start(&thread, race_softirq_kthread_body, 1);

	for (i = 0; !err && i < 3; i++) {
		tasklet_schedule(&tasklet);
		race_pause();
	}
	return err;
}

static void __exit race_softirq_kthread_exit(void)
{
	zoo_thread_stop(&thread);
	tasklet_kill(&tasklet);
	race_use(setting);
}

module_init(race_softirq_kthread_init);
module_exit(race_softirq_kthread_exit);
MODULE_DESCRIPTION("zoo: tasklet and thread share a setting");
