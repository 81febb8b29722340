// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The helper fails without setting its result; the caller ignores the status and decides on the
 * result.
 *
 * Twin: the helper fails without setting its result; the caller looks at the status first.
 */
#include "zoo.h"

struct reading {
	u32 channel;
	u32 level;
};

static noinline int uninit_stack_read(int failed, struct reading *r)
{
	r->channel = 4;
	if (failed)
		return -EIO;
	r->level = 2;
	return 0;
}

static noinline void uninit_stack_poll(void)
{
	struct reading r;

#ifdef TWIN
	if (uninit_stack_read(zoo_hide(1), &r) == 0 && READ_ONCE(r.level) > 3)
#else
	uninit_stack_read(zoo_hide(1), &r);
	if (READ_ONCE(r.level) > 3) /* BUG: uninit-branch */
#endif
		zoo_sink++;
}

static int __init uninit_stack_init(void)
{
	uninit_stack_poll();
	return 0;
}

static void __exit uninit_stack_exit(void)
{
}

module_init(uninit_stack_init);
module_exit(uninit_stack_exit);
MODULE_DESCRIPTION("zoo: decides on a local that its helper left unset on failure");
