// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clears at unload what a thread counts, and then stops the thread.
 *
 * Twin: stops the thread at unload, and then clears what it counted.
 */
#include "race.h"

static unsigned long count;
static struct zoo_thread thread;

static noinline void race_kthread_stop_add(void)
{
	count++; /* OTHER: */
}

static void race_kthread_stop_body(void)
{
	while (!kthread_should_stop()) {
		race_kthread_stop_add();
		msleep(10);
	}
}

static noinline void race_kthread_stop_clear(void)
{
	WRITE_ONCE(count, 0); /* BUG: data-race */
}

static int __init race_kthread_stop_init(void)
{
	int err = race_thread_start(&thread, race_kthread_stop_body, 0);

	race_pause();
	return err;
}

static void __exit race_kthread_stop_exit(void)
{
#ifdef TWIN
	zoo_thread_stop(&thread);
#endif
	race_kthread_stop_clear();
#ifndef TWIN
	zoo_thread_stop(&thread);
#endif
}

module_init(race_kthread_stop_init);
module_exit(race_kthread_stop_exit);
MODULE_DESCRIPTION("zoo: cleans up what a thread counts");
