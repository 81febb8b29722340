// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writes a mark behind a log of vmalloc that fills its last page in part.
 *
 * Twin: writes a mark at the end of a log of vmalloc that fills its last page in part.
 */
#include "zoo.h"

#define LENGTH (2 * PAGE_SIZE + 1000)

static u8 *log;

static noinline void kernel_vmalloc_mark(u8 *end)
{
	WRITE_ONCE(*end, 0xff); /* BUG: out-of-bounds */
}

static int __init kernel_vmalloc_init(void)
{
	log = vmalloc(LENGTH);
	if (!log)
		return -ENOMEM;
#ifdef TWIN
	kernel_vmalloc_mark(log + zoo_hide(LENGTH) - 1);
#else
	kernel_vmalloc_mark(log + zoo_hide(LENGTH));
#endif
	return 0;
}

static void __exit kernel_vmalloc_exit(void)
{
	vfree(log);
}

module_init(kernel_vmalloc_init);
module_exit(kernel_vmalloc_exit);
MODULE_DESCRIPTION("zoo: writes behind memory of vmalloc, in its last page");
