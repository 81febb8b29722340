// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads a table in vmalloc space after vfree; depending on the TLB the read faults or returns old
 * bytes.
 *
 * Twin: frees a table in vmalloc space and reads its successor, which may lie at the same address.
 */
#include "zoo.h"

#define TABLE 3000

static struct zoo_thread thread;

static noinline void uaf_vmalloc_run(void)
{
	u32 *table = zoo_hide((u32 *)vmalloc(TABLE * sizeof(*table)));

	if (!table)
		return;
	table[100] = 7;
	vfree(table);
#ifdef TWIN
	table = vmalloc(TABLE * sizeof(*table));
	if (!table)
		return;
	table[100] = 8;
#endif
	zoo_sink = READ_ONCE(table[100]); /* BUG: use-after-free */
#ifdef TWIN
	vfree(table);
#endif
}

static int __init uaf_vmalloc_init(void)
{
	return zoo_thread_start(&thread, uaf_vmalloc_run);
}

static void __exit uaf_vmalloc_exit(void)
{
	zoo_thread_stop(&thread);
}

module_init(uaf_vmalloc_init);
module_exit(uaf_vmalloc_exit);
MODULE_DESCRIPTION("zoo: reads vmalloc memory after vfree");
