// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two channels share a table in vmalloc space, and each frees it.
 *
 * Twin: two channels share a table in vmalloc space, and the last one frees it.
 */
#include "zoo.h"

struct channel {
	u32 *table;
};

static struct channel channels[2];
static unsigned int users;

static noinline void double_vfree_close(struct channel *c)
{
#ifdef TWIN
	if (--users)
		return;
#endif
	vfree(c->table); /* BUG: double-free */
}

static int __init double_vfree_init(void)
{
	u32 *table = vmalloc(3 * PAGE_SIZE);

	if (!table)
		return -ENOMEM;
	table[0] = 1;
	channels[0].table = table;
	channels[1].table = table;
	users = 2;
	return 0;
}

static void __exit double_vfree_exit(void)
{
	double_vfree_close(&channels[0]);
	double_vfree_close(&channels[1]);
}

module_init(double_vfree_init);
module_exit(double_vfree_exit);
MODULE_DESCRIPTION("zoo: two owners both free a shared vmalloc table");
