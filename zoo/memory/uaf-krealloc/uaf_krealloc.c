// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Keeps a pointer to the first record while krealloc moves the table, and reads through it.
 *
 * Twin: finds the first record again after krealloc has moved the table.
 */
#include "zoo.h"

struct record {
	u32 id;
	u32 weight;
};

static struct record *table;

static noinline void uaf_krealloc_grow(unsigned int count)
{
	struct record *first = zoo_hide(&table[0]);
	struct record *grown = krealloc(table, count * sizeof(*table), GFP_KERNEL);

	if (!grown)
		return;
	table = grown;
#ifdef TWIN
	first = &grown[0];
#endif
	zoo_sink = READ_ONCE(first->id); /* BUG: use-after-free */
}

static int __init uaf_krealloc_init(void)
{
	unsigned int i;

	table = kmalloc_array(10, sizeof(*table), GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	for (i = 0; i < 10; i++) {
		table[i].id = i;
		table[i].weight = 1;
	}
	uaf_krealloc_grow(500);
	return 0;
}

static void __exit uaf_krealloc_exit(void)
{
	kfree(table);
}

module_init(uaf_krealloc_init);
module_exit(uaf_krealloc_exit);
MODULE_DESCRIPTION("zoo: keeps a pointer into memory that krealloc moved");
