// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread takes the queue's spin lock under the channel's; the task that loads takes them the
 * other way round.
 *
 * Twin: two tasks take two spin locks in opposite orders, both under a third that keeps them
 * apart.
 */
#include "zoo.h"

static DEFINE_SPINLOCK(channel_lock);
static DEFINE_SPINLOCK(queue_lock);
#ifdef TWIN
static DEFINE_MUTEX(config_lock);
#endif
static struct zoo_thread thread;

static noinline void lock_order_tasks_submit(void)
{
#ifdef TWIN
	mutex_lock(&config_lock);
#endif
	spin_lock(&channel_lock);
	spin_lock(&queue_lock);
	spin_unlock(&queue_lock);
	spin_unlock(&channel_lock);
#ifdef TWIN
	mutex_unlock(&config_lock);
#endif
}

static noinline void lock_order_tasks_reset(void)
{
#ifdef TWIN
	mutex_lock(&config_lock);
#endif
	spin_lock(&queue_lock);
	spin_lock(&channel_lock); /* BUG: lock-order */
	spin_unlock(&channel_lock);
	spin_unlock(&queue_lock);
#ifdef TWIN
	mutex_unlock(&config_lock);
#endif
}

static int __init lock_order_tasks_init(void)
{
	int err = zoo_thread_start(&thread, lock_order_tasks_submit);

	if (err)
		return err;
	/* The two do not meet: the orders are wrong all the same. */
	zoo_thread_stop(&thread);
	lock_order_tasks_reset();
	return 0;
}

static void __exit lock_order_tasks_exit(void)
{
}

module_init(lock_order_tasks_init);
module_exit(lock_order_tasks_exit);
MODULE_DESCRIPTION("zoo: takes two spin locks in opposite orders in two tasks");
