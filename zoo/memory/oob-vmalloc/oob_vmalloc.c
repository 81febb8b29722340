// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fills a table in vmalloc space past the size it asked for; the last page hides it.
 *
 * Twin: fills a table in vmalloc space of whole pages to its last byte.
 */
#include "zoo.h"

#define COUNT 1500

static u32 *table;

static noinline void oob_vmalloc_fill(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		WRITE_ONCE(table[i], i); /* BUG: out-of-bounds */
}

static int __init oob_vmalloc_init(void)
{
#ifdef TWIN
	table = vmalloc(PAGE_ALIGN(COUNT * sizeof(*table)));
#else
	table = vmalloc(COUNT * sizeof(*table));
#endif
	if (!table)
		return -ENOMEM;
	oob_vmalloc_fill(zoo_hide(2 * PAGE_SIZE / sizeof(*table)));
	return 0;
}

static void __exit oob_vmalloc_exit(void)
{
	vfree(table);
}

module_init(oob_vmalloc_init);
module_exit(oob_vmalloc_exit);
MODULE_DESCRIPTION("zoo: writes past the size it asked vmalloc for, inside the last page");
