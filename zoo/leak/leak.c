// SPDX-License-Identifier: GPL-2.0-or-later
/* Unload walks the table from the second entry: the first is never freed. */
#include "../zoo.h"

struct entry {
	struct rcu_head rcu;
	u32 id;
};

static struct entry *entries[3];

static noinline struct entry *leak_new(u32 id)
{
	struct entry *e = kmalloc(sizeof(*e), GFP_KERNEL); /* BUG: leak */

	if (e)
		e->id = id;
	return e;
}

static int __init leak_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(entries); i++)
		entries[i] = leak_new(i);
	return 0;
}

static void __exit leak_exit(void)
{
	unsigned int i;

	for (i = 1; i < ARRAY_SIZE(entries); i++) {
		kfree(entries[i]);
		entries[i] = NULL;
	}
}

module_init(leak_init);
module_exit(leak_exit);
MODULE_DESCRIPTION("zoo: forgets one of its objects at unload");
MODULE_LICENSE("GPL");
