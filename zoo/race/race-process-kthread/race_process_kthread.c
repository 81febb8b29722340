// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread changes what a process reads, with the semaphore taken for reading on both sides.
 *
 * Twin: a thread changes what a process reads, with the semaphore taken for writing.
 */
#include "race.h"

static DECLARE_RWSEM(sem);
static unsigned long setting;
static struct zoo_thread thread;

static noinline void race_process_kthread_change(void)
{
#ifdef TWIN
	down_write(&sem);
#else
	down_read(&sem);
#endif
	setting++; /* BUG: data-race */
#ifdef TWIN
	up_write(&sem);
#else
	up_read(&sem);
#endif
}

static void race_process_kthread_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_process_kthread_change();
		msleep(10);
	}
}

static noinline void race_process_kthread_look(void)
{
	down_read(&sem);
	race_use(setting); /* OTHER: */
	up_read(&sem);
}

static int __init race_process_kthread_init(void)
{
	int i, err = race_thread_start(&thread, race_process_kthread_body, 0);

	for (i = 0; !err && i < 3; i++) {
		race_process_kthread_look();
		race_pause();
	}
	return err;
}

static void __exit race_process_kthread_exit(void)
{
	zoo_thread_stop(&thread);
	race_use(setting);
}

module_init(race_process_kthread_init);
module_exit(race_process_kthread_exit);
MODULE_DESCRIPTION("zoo: process and thread share a setting");
