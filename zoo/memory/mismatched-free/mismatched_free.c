// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Allocates small tables with kmalloc and large ones with vmalloc, and frees both with vfree.
 *
 * Twin: allocates small tables with kmalloc and large ones with vmalloc, and frees both with
 * kvfree.
 */
#include "zoo.h"

static u32 *small, *large;

static noinline u32 *mismatched_free_get(size_t size)
{
	u32 *t = size <= PAGE_SIZE ? kmalloc(size, GFP_KERNEL) : vmalloc(size);

	if (t)
		t[0] = 1;
	return t;
}

static noinline void mismatched_free_put(u32 *t)
{
#ifdef TWIN
	kvfree(t);
#else
	vfree(t); /* BUG: mismatched-free */
#endif
}

static int __init mismatched_free_init(void)
{
	small = mismatched_free_get(zoo_hide(200));
	large = mismatched_free_get(zoo_hide(20000));
	return 0;
}

static void __exit mismatched_free_exit(void)
{
	mismatched_free_put(large);
	mismatched_free_put(small);
}

module_init(mismatched_free_init);
module_exit(mismatched_free_exit);
MODULE_DESCRIPTION("zoo: frees kmalloc memory with vfree");
