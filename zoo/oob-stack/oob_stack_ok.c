// SPDX-License-Identifier: GPL-2.0-or-later
/* A helper is lent the address of its caller's local and writes through it while the caller waits. */
#include "../zoo.h"

struct request {
	volatile u32 *where;
};

static noinline void oob_stack_prepare(struct request *r)
{
	*r->where = 3;
	zoo_sink = *r->where;
}

static noinline void oob_stack_run(void)
{
	struct request r;
	u32 local = 0;

	r.where = &local;
	oob_stack_prepare(&r);
	WRITE_ONCE(*r.where, 5);
	zoo_sink = local;
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
MODULE_DESCRIPTION("zoo: a helper writes into the live frame of its caller, correct");
MODULE_LICENSE("GPL");
