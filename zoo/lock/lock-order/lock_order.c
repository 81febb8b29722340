// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Takes the list's mutex under the table's, and at another time the table's under the list's.
 *
 * Twin: takes the list's mutex under the table's; the other way round it only tries, and waits for
 * nobody.
 */
#include "zoo.h"

static DEFINE_MUTEX(table_lock);
static DEFINE_MUTEX(list_lock);

static noinline void lock_order_insert(void)
{
	mutex_lock(&table_lock);
	mutex_lock(&list_lock);
	mutex_unlock(&list_lock);
	mutex_unlock(&table_lock);
}

static noinline void lock_order_resize(void)
{
	mutex_lock(&list_lock);
#ifdef TWIN
	if (mutex_trylock(&table_lock))
		mutex_unlock(&table_lock);
#else
	mutex_lock(&table_lock); /* BUG: lock-order */
	mutex_unlock(&table_lock);
#endif
	mutex_unlock(&list_lock);
}

static int __init lock_order_init(void)
{
	lock_order_insert();
	lock_order_resize();
	return 0;
}

static void __exit lock_order_exit(void)
{
}

module_init(lock_order_init);
module_exit(lock_order_exit);
MODULE_DESCRIPTION("zoo: takes two mutexes in opposite orders");
