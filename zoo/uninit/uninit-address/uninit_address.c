// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads a table at an index that nobody set (masked, so that it stays inside the table).
 *
 * Twin: reads a table at an index that was set through a copy between two half-set objects.
 */
#include "zoo.h"

struct queue {
	u32 id;
	u32 slot;
};

static u32 table[16] = { 1, 2, 3, 4 };

static noinline void uninit_address_fill(struct queue *q)
{
	q->id = 1;
#ifdef TWIN
	q->slot = 3;
#endif
}

static noinline u32 uninit_address_lookup(const struct queue *q)
{
	u32 slot = READ_ONCE(q->slot) & 15;

	return READ_ONCE(table[slot]); /* BUG: uninit-address */
}

static int __init uninit_address_init(void)
{
	struct queue *q = kmalloc(sizeof(*q), GFP_KERNEL);

	if (!q)
		return -ENOMEM;
	uninit_address_fill(q);
	zoo_sink = uninit_address_lookup(q);
	WRITE_ONCE(table[0], 9);
	kfree(q);
	return 0;
}

static void __exit uninit_address_exit(void)
{
}

module_init(uninit_address_init);
module_exit(uninit_address_exit);
MODULE_DESCRIPTION("zoo: uses an index that nobody set");
