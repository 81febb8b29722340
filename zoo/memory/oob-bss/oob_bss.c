// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Marks one slot more than the map has.
 *
 * Twin: marks every slot of the map up to its last byte.
 */
#include "zoo.h"

#define SLOTS 37

/* Each aligned, so that bytes that belong to no symbol follow the array. */
static u8 slots[SLOTS] __aligned(64);
static u8 used __aligned(64);

static noinline void oob_bss_mark(unsigned int n)
{
	unsigned int i;

#ifdef TWIN
	for (i = 0; i < n; i++)
#else
	for (i = 0; i <= n; i++)
#endif
		WRITE_ONCE(slots[i], 1); /* BUG: out-of-bounds */
	WRITE_ONCE(used, 1);
}

static int __init oob_bss_init(void)
{
	oob_bss_mark(zoo_hide(SLOTS));
	return 0;
}

static void __exit oob_bss_exit(void)
{
	zoo_sink = slots[3] + used;
}

module_init(oob_bss_init);
module_exit(oob_bss_exit);
MODULE_DESCRIPTION("zoo: writes past a zeroed array of the module");
