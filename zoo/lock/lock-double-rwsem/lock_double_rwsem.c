// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread that reads under an rw-semaphore waits to write under it; a signal ends its wait.
 *
 * Twin: a thread that reads under an rw-semaphore gives it back before it takes it for writing.
 */
#include "zoo.h"
#include <linux/rwsem.h>
#include <linux/sched/signal.h>

static DECLARE_RWSEM(lock);
static struct zoo_thread thread;

static noinline void lock_double_rwsem_grow(void)
{
	if (down_write_killable(&lock)) /* BUG: double-lock */
		return;
	up_write(&lock);
}

static noinline void lock_double_rwsem_body(void)
{
	allow_signal(SIGKILL);
	down_read(&lock);
#ifdef TWIN
	up_read(&lock);
#endif
	lock_double_rwsem_grow();
#ifndef TWIN
	up_read(&lock);
#endif
}

static int __init lock_double_rwsem_init(void)
{
	int err = zoo_thread_start(&thread, lock_double_rwsem_body);

	if (err)
		return err;
	/* The thread waits for itself until then. */
	msleep(50);
	send_sig(SIGKILL, thread.task, 1);
	return 0;
}

static void __exit lock_double_rwsem_exit(void)
{
	zoo_thread_stop(&thread);
}

module_init(lock_double_rwsem_init);
module_exit(lock_double_rwsem_exit);
MODULE_DESCRIPTION("zoo: waits for an rw-semaphore for writing that it holds for reading");
