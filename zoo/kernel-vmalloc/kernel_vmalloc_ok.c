// SPDX-License-Identifier: GPL-2.0-or-later
/* Writes a mark at the end of a log of vmalloc that fills its last page in part. */
#include "../zoo.h"

#define LENGTH (2 * PAGE_SIZE + 1000)

static u8 *log;

static noinline void kernel_vmalloc_mark(u8 *end)
{
	WRITE_ONCE(*end, 0xff);
}

static int __init kernel_vmalloc_init(void)
{
	log = vmalloc(LENGTH);
	if (!log)
		return -ENOMEM;
	kernel_vmalloc_mark(log + zoo_hide(LENGTH) - 1);
	return 0;
}

static void __exit kernel_vmalloc_exit(void)
{
	vfree(log);
}

module_init(kernel_vmalloc_init);
module_exit(kernel_vmalloc_exit);
MODULE_DESCRIPTION("zoo: writes the last byte of memory of vmalloc, correct");
MODULE_LICENSE("GPL");
