// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A helper leaves the address of its local behind; the caller writes through it after the helper
 * has returned.
 *
 * Twin: a helper is lent the address of its caller's local and writes through it while the caller
 * waits.
 */
#include "zoo.h"

struct request {
	volatile u32 *where;
};

static noinline void oob_stack_prepare(struct request *r)
{
#ifndef TWIN
	u32 local[8];

	local[0] = zoo_hide(1);
	local[7] = zoo_hide(2);
	r->where = zoo_hide((volatile u32 *)&local[1]);
#endif
	*r->where = 3;
#ifdef TWIN
	zoo_sink = *r->where;
#else
	zoo_sink = local[0] + local[7];
#endif
}

static noinline void oob_stack_run(void)
{
	struct request r;
#ifdef TWIN
	u32 local = 0;
#endif

#ifdef TWIN
	r.where = &local;
#endif
	oob_stack_prepare(&r);
	WRITE_ONCE(*r.where, 5); /* BUG: out-of-bounds */
#ifdef TWIN
	zoo_sink = local;
#endif
}

static int __init oob_stack_init(void)
{
	oob_stack_run();
	return 0;
}

static void __exit oob_stack_exit(void)
{
}

module_init(oob_stack_init);
module_exit(oob_stack_exit);
MODULE_DESCRIPTION("zoo: writes into the frame of a function that has returned");
