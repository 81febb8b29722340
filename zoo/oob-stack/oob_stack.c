// SPDX-License-Identifier: GPL-2.0-or-later
/* A helper leaves the address of its local behind; the caller writes through it after the helper has returned. */
#include "../zoo.h"

struct request {
	volatile u32 *where;
};

static noinline void oob_stack_prepare(struct request *r)
{
	u32 local[8];

	local[0] = zoo_hide(1);
	local[7] = zoo_hide(2);
	r->where = zoo_hide((volatile u32 *)&local[1]);
	*r->where = 3;
	zoo_sink = local[0] + local[7];
}

static noinline void oob_stack_run(void)
{
	struct request r;

	oob_stack_prepare(&r);
	WRITE_ONCE(*r.where, 5); /* BUG: out-of-bounds */
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
MODULE_LICENSE("GPL");
