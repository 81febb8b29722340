// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sums a table and one element more than it has.
 *
 * Twin: sums a table up to its very last byte.
 */
#include "zoo.h"

#define COUNT 27

static u32 *table;

static noinline u32 oob_heap_sum(const u32 *t, unsigned int count)
{
	u32 sum = 0;
	unsigned int i;

#ifdef TWIN
	for (i = 0; i < count; i++)
#else
	for (i = 0; i <= count; i++)
#endif
		sum += READ_ONCE(t[i]); /* BUG: out-of-bounds */
	return sum;
}

static int __init oob_heap_init(void)
{
	unsigned int i;

	table = kmalloc_array(COUNT, sizeof(*table), GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	for (i = 0; i < COUNT; i++)
		table[i] = i;
	zoo_sink = oob_heap_sum(table, zoo_hide(COUNT));
	return 0;
}

static void __exit oob_heap_exit(void)
{
	kfree(table);
}

module_init(oob_heap_init);
module_exit(oob_heap_exit);
MODULE_DESCRIPTION("zoo: sums one element too many");
