// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Unload walks the table from the second entry: the first is never freed.
 *
 * Twin: unload frees every entry; the first through kfree_rcu, which frees after the module is
 * gone.
 */
#include "zoo.h"

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

#ifdef TWIN
	for (i = 0; i < ARRAY_SIZE(entries); i++) {
		if (i == 0 && entries[i])
			kfree_rcu(entries[i], rcu);
		else
			kfree(entries[i]);
#else
	for (i = 1; i < ARRAY_SIZE(entries); i++) {
		kfree(entries[i]);
#endif
		entries[i] = NULL;
	}
}

module_init(leak_init);
module_exit(leak_exit);
MODULE_DESCRIPTION("zoo: forgets one of its objects at unload");
