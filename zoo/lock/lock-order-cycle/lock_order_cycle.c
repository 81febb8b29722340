// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Three functions take two of three locks each; only together they close a cycle (mutex,
 * rw-semaphore, mutex).
 *
 * Twin: three functions take two of three locks each, all in one order.
 */
#include "zoo.h"

static DEFINE_MUTEX(port_lock);
static DECLARE_RWSEM(map_lock);
static DEFINE_MUTEX(link_lock);

static noinline void lock_order_cycle_first(void)
{
	mutex_lock(&port_lock);
	down_read(&map_lock);
	up_read(&map_lock);
	mutex_unlock(&port_lock);
}

static noinline void lock_order_cycle_second(void)
{
	down_write(&map_lock);
	mutex_lock(&link_lock);
	mutex_unlock(&link_lock);
	up_write(&map_lock);
}

static noinline void lock_order_cycle_third(void)
{
#ifdef TWIN
	mutex_lock(&port_lock);
#endif
	mutex_lock(&link_lock);
#ifdef TWIN
	mutex_unlock(&link_lock);
#else
	mutex_lock(&port_lock); /* BUG: lock-order */
#endif
	mutex_unlock(&port_lock);
#ifndef TWIN
	mutex_unlock(&link_lock);
#endif
}

static int __init lock_order_cycle_init(void)
{
	lock_order_cycle_first();
	lock_order_cycle_second();
	lock_order_cycle_third();
	return 0;
}

static void __exit lock_order_cycle_exit(void)
{
}

module_init(lock_order_cycle_init);
module_exit(lock_order_cycle_exit);
MODULE_DESCRIPTION("zoo: takes three locks in an order that goes round");
