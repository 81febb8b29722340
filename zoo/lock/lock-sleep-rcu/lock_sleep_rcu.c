// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Takes a mutex in an RCU read section.
 *
 * Twin: leaves the RCU read section before it takes a mutex.
 */
#include "zoo.h"
#include <linux/rcupdate.h>

struct config {
	unsigned int rate;
};

static DEFINE_MUTEX(lock);
static struct config settings = { .rate = 5 };
static struct config __rcu *current_config = RCU_INITIALIZER(&settings);

static noinline unsigned int lock_sleep_rcu_sync(void)
{
	unsigned int rate;

	rcu_read_lock();
	rate = rcu_dereference(current_config)->rate;
#ifdef TWIN
	rcu_read_unlock();
#endif
	mutex_lock(&lock); /* BUG: sleep-in-atomic */
	mutex_unlock(&lock);
#ifndef TWIN
	rcu_read_unlock();
#endif
	return rate;
}

static int __init lock_sleep_rcu_init(void)
{
	zoo_sink = lock_sleep_rcu_sync();
	return 0;
}

static void __exit lock_sleep_rcu_exit(void)
{
}

module_init(lock_sleep_rcu_init);
module_exit(lock_sleep_rcu_exit);
MODULE_DESCRIPTION("zoo: takes a mutex in an RCU read section");
