// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clears a table and one element more, which is the first one of the table behind it in the same slab.
 *
 * Twin: clears a table up to its very last element.
 */
#include "zoo.h"

#define COUNT 16
#define TABLES 64

static u32 *tables[TABLES];

static noinline void oob_neighbor_clear(u32 *t, unsigned int count)
{
	unsigned int i;

#ifdef TWIN
	for (i = 0; i < count; i++)
#else
	for (i = 0; i <= count; i++)
#endif
		WRITE_ONCE(t[i], 0); /* BUG: out-of-bounds */
}

/* A table that another one follows without a gap; the slots of 64 bytes lie side by side. */
static u32 *oob_neighbor_followed(void)
{
	unsigned int i, j;

	for (i = 0; i < TABLES; i++)
		for (j = 0; tables[i] && j < TABLES; j++)
			if ((unsigned long)tables[j] == (unsigned long)tables[i] + COUNT * sizeof(u32))
				return tables[i];
	return NULL;
}

static int __init oob_neighbor_init(void)
{
	unsigned int i;
	u32 *followed;

	for (i = 0; i < TABLES; i++)
		tables[i] = kmalloc_array(COUNT, sizeof(u32), GFP_KERNEL);
	followed = oob_neighbor_followed();
	if (followed)
		oob_neighbor_clear(followed, zoo_hide(COUNT));
	return 0;
}

static void __exit oob_neighbor_exit(void)
{
	unsigned int i;

	for (i = 0; i < TABLES; i++)
		kfree(tables[i]);
}

module_init(oob_neighbor_init);
module_exit(oob_neighbor_exit);
MODULE_DESCRIPTION("zoo: clears the first element of the next object");
