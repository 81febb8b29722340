// SPDX-License-Identifier: GPL-2.0-or-later
/* Unload frees every entry; the first through kfree_rcu, which frees after the module is gone. */
#include "../zoo.h"

struct entry {
	struct rcu_head rcu;
	u32 id;
};

static struct entry *entries[3];

static noinline struct entry *leak_new(u32 id)
{
	struct entry *e = kmalloc(sizeof(*e), GFP_KERNEL);

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

	for (i = 0; i < ARRAY_SIZE(entries); i++) {
		if (i == 0 && entries[i])
			kfree_rcu(entries[i], rcu);
		else
			kfree(entries[i]);
		entries[i] = NULL;
	}
}

module_init(leak_init);
module_exit(leak_exit);
MODULE_DESCRIPTION("zoo: frees all its objects at unload, through kfree_rcu or at once, correct");
MODULE_LICENSE("GPL");
