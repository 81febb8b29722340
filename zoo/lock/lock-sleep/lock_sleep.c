// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Allocates with GFP_KERNEL under a spin lock; there is memory enough, so that it does not sleep
 * today.
 *
 * Twin: allocates with GFP_ATOMIC under a spin lock.
 */
#include "zoo.h"

struct entry {
	struct list_head node;
	unsigned int id;
};

static DEFINE_SPINLOCK(lock);
static LIST_HEAD(entries);

static noinline int lock_sleep_add(unsigned int id)
{
	struct entry *e;

	spin_lock(&lock);
#ifdef TWIN
	e = kmalloc(sizeof(*e), GFP_ATOMIC);
#else
	e = kmalloc(sizeof(*e), GFP_KERNEL); /* BUG: sleep-in-atomic */
#endif
	if (e) {
		e->id = id;
		list_add(&e->node, &entries);
	}
	spin_unlock(&lock);
	return e ? 0 : -ENOMEM;
}

static int __init lock_sleep_init(void)
{
	return lock_sleep_add(1);
}

static void __exit lock_sleep_exit(void)
{
	struct entry *e, *next;

	list_for_each_entry_safe(e, next, &entries, node)
		kfree(e);
}

module_init(lock_sleep_init);
module_exit(lock_sleep_exit);
MODULE_DESCRIPTION("zoo: allocates under a spin lock as if it could sleep");
