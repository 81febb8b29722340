// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Empties a list with an iterator that reads the entry it has just freed to find the next.
 *
 * Twin: empties a list, taking the next entry's address before the entry is freed.
 */
#include "zoo.h"

struct entry {
	struct list_head node;
	unsigned int id;
};

static LIST_HEAD(entries);

static noinline void uaf_list_drain(void)
{
	struct list_head *pos = entries.next;

	while (pos != &entries) {
#ifdef TWIN
		struct list_head *next = READ_ONCE(pos->next);

#endif
		kfree(list_entry(pos, struct entry, node));
#ifdef TWIN
		pos = next;
#else
		pos = READ_ONCE(pos->next); /* BUG: use-after-free */
#endif
	}
	INIT_LIST_HEAD(&entries);
}

static int __init uaf_list_init(void)
{
	unsigned int i;

	for (i = 0; i < 3; i++) {
		struct entry *e = kmalloc(sizeof(*e), GFP_KERNEL);

		if (!e)
			break;
		e->id = i;
		list_add_tail(&e->node, &entries);
	}
	return 0;
}

static void __exit uaf_list_exit(void)
{
	uaf_list_drain();
}

module_init(uaf_list_init);
module_exit(uaf_list_exit);
MODULE_DESCRIPTION("zoo: list iteration over freed entries");
