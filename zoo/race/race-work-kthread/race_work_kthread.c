// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A work item and a thread share a counter under a mutex; the thread counts although it did not
 * get it.
 *
 * Twin: a work item and a thread share a counter under a mutex; the thread counts if it got it.
 */
#include "race.h"

static DEFINE_MUTEX(mutex);
static unsigned long count;
static struct zoo_thread thread;

static noinline void race_work_kthread_run(struct work_struct *work)
{
	mutex_lock(&mutex);
	count++; /* OTHER: */
	mutex_unlock(&mutex);
}

static DECLARE_WORK(work, race_work_kthread_run);

static noinline void race_work_kthread_add(void)
{
	bool mine = mutex_trylock(&mutex);

#ifdef TWIN
	if (mine)
		count++;
#else
	count++; /* BUG: data-race */
#endif
	if (mine)
		mutex_unlock(&mutex);
}

static void race_work_kthread_body(void)
{
	int i;

	for (i = 0; i < 4; i++) {
		race_work_kthread_add();
		msleep(10);
	}
}

static int __init race_work_kthread_init(void)
{
	int err;

	schedule_work(&work);
	race_pause();
	mutex_lock(&mutex);
	err = race_thread_start(&thread, race_work_kthread_body, 0);
	race_pause();
	mutex_unlock(&mutex);
	schedule_work(&work);
	race_pause();
	return err;
}

static void __exit race_work_kthread_exit(void)
{
	zoo_thread_stop(&thread);
	cancel_work_sync(&work);
	race_use(count);
}

module_init(race_work_kthread_init);
module_exit(race_work_kthread_exit);
MODULE_DESCRIPTION("zoo: work item and thread share a counter");
