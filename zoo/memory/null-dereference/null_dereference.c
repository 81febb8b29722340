// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Uses the result of a look-up that found nothing: the access faults and kills the module's own
 * thread.
 *
 * Twin: takes the address of a member of nothing, and checks before it uses it.
 */
#include "zoo.h"

struct port {
	u32 number;
	u32 speed;
	u32 errors;
};

static struct zoo_thread thread;
static struct port ports[2] = { { 1, 100, 0 }, { 2, 1000, 0 } };

static noinline struct port *null_dereference_find(u32 number)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ports); i++)
		if (READ_ONCE(ports[i].number) == number)
			return &ports[i];
	return NULL;
}

static noinline void null_dereference_run(void)
{
	struct port *p = null_dereference_find(zoo_hide(3));
	u32 *errors = zoo_hide(&p->errors);

#ifdef TWIN
	if (!p)
		return;
#endif
	WRITE_ONCE(*errors, 1); /* BUG: null-dereference */
}

static int __init null_dereference_init(void)
{
	return zoo_thread_start(&thread, null_dereference_run);
}

static void __exit null_dereference_exit(void)
{
	zoo_thread_stop(&thread);
	zoo_sink = ports[0].errors;
}

module_init(null_dereference_init);
module_exit(null_dereference_exit);
MODULE_DESCRIPTION("zoo: uses the result of a failed look-up");
