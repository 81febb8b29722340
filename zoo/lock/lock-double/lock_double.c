// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread waits for the mutex that it holds; a signal ends its wait.
 *
 * Twin: the function that wants the mutex held is called with it held.
 */
#include "zoo.h"
#include <linux/sched/signal.h>

static DEFINE_MUTEX(lock);
static struct zoo_thread thread;

static noinline void lock_double_flush(void)
{
#ifdef TWIN
	lockdep_assert_held(&lock);
#else
	if (mutex_lock_interruptible(&lock)) /* BUG: double-lock */
		return;
	mutex_unlock(&lock);
#endif
}

static noinline void lock_double_body(void)
{
	allow_signal(SIGINT);
	/* It waits for itself; with a signal pending that fails, before a wake-up could hand it the mutex once more. */
	send_sig(SIGINT, current, 1);
	mutex_lock(&lock);
	lock_double_flush();
	mutex_unlock(&lock);
}

static int __init lock_double_init(void)
{
	return zoo_thread_start(&thread, lock_double_body);
}

static void __exit lock_double_exit(void)
{
	zoo_thread_stop(&thread);
}

module_init(lock_double_init);
module_exit(lock_double_exit);
MODULE_DESCRIPTION("zoo: waits for a mutex that it holds");
