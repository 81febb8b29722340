// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Follows an error code as if it were a pointer: the access faults and kills the module's own
 * thread.
 *
 * Twin: distinguishes an error code from a pointer before it follows it.
 */
#include "zoo.h"

struct clock {
	u32 rate;
	u32 parent;
};

static struct zoo_thread thread;
static struct clock clock = { 48000, 1 };

static noinline struct clock *wild_access_get(int id)
{
	if (id != 1)
		return ERR_PTR(-ENOENT);
	return &clock;
}

static noinline void wild_access_run(void)
{
	struct clock *c = wild_access_get(zoo_hide(2));

#ifdef TWIN
	if (IS_ERR(c))
		return;
#endif
	zoo_sink = READ_ONCE(c->rate); /* BUG: wild-access */
}

static int __init wild_access_init(void)
{
	return zoo_thread_start(&thread, wild_access_run);
}

static void __exit wild_access_exit(void)
{
	zoo_thread_stop(&thread);
}

module_init(wild_access_init);
module_exit(wild_access_exit);
MODULE_DESCRIPTION("zoo: follows an error code as if it were a pointer");
