// SPDX-License-Identifier: GPL-2.0-or-later
/* Two tasks take two spin locks in opposite orders, both under a third that keeps them apart. */
#include "../zoo.h"

static DEFINE_SPINLOCK(channel_lock);
static DEFINE_SPINLOCK(queue_lock);
static DEFINE_MUTEX(config_lock);
static struct zoo_thread thread;

static noinline void lock_order_tasks_submit(void)
{
	mutex_lock(&config_lock);
	spin_lock(&channel_lock);
	spin_lock(&queue_lock);
	spin_unlock(&queue_lock);
	spin_unlock(&channel_lock);
	mutex_unlock(&config_lock);
}

static noinline void lock_order_tasks_reset(void)
{
	mutex_lock(&config_lock);
	spin_lock(&queue_lock);
	spin_lock(&channel_lock);
	spin_unlock(&channel_lock);
	spin_unlock(&queue_lock);
	mutex_unlock(&config_lock);
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
MODULE_DESCRIPTION("zoo: takes two spin locks in opposite orders under a third lock, correct");
MODULE_LICENSE("GPL");
