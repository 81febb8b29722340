// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the guard page behind vmalloc memory: the access faults and kills the module's own thread.
 *
 * Twin: reads vmalloc memory up to the byte before its guard page.
 */
#include "zoo.h"

#define COUNT (2 * PAGE_SIZE / sizeof(u64))

static struct zoo_thread thread;
static u64 *table;

static noinline void oob_guard_scan(void)
{
	unsigned int i, count = zoo_hide(COUNT);

#ifdef TWIN
	for (i = 0; i < count; i++)
#else
	for (i = 0; i <= count; i++)
#endif
		zoo_sink = READ_ONCE(table[i]); /* BUG: out-of-bounds */
}

static int __init oob_guard_init(void)
{
	int err;

	table = vzalloc(COUNT * sizeof(*table));
	if (!table)
		return -ENOMEM;
	err = zoo_thread_start(&thread, oob_guard_scan);
	if (err)
		vfree(table);
	return err;
}

static void __exit oob_guard_exit(void)
{
	zoo_thread_stop(&thread);
	vfree(table);
}

module_init(oob_guard_init);
module_exit(oob_guard_exit);
MODULE_DESCRIPTION("zoo: reads the guard page behind vmalloc memory");
