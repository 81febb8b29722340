// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A kernel thread descends a tree by recursion, as deep as the user says: any stack is too small
 * at some depth.
 *
 * Twin: a kernel thread descends a tree by recursion, as deep as the user says, and no deeper than
 * 20 levels.
 */
#include <linux/moduleparam.h>
#include "zoo.h"

static unsigned int depth;
static struct zoo_thread walker;
static DECLARE_COMPLETION(walked);

static noinline unsigned int kernel_recursion_descend(unsigned int level)
{
	volatile unsigned int path[64];

	path[0] = level; /* BUG: stack-overflow */
	if (level < depth)
		path[63] = kernel_recursion_descend(level + 1);
	else
		path[63] = 0;
	return path[0] + path[63];
}

static void kernel_recursion_walk(void)
{
	zoo_sink = kernel_recursion_descend(1);
	complete(&walked);
}

/* The writer does not hang if the thread dies. */
static int kernel_recursion_set(const char *value, const struct kernel_param *parameter)
{
	int err = kstrtouint(value, 10, &depth);

	if (err)
		return err;
#ifdef TWIN
	depth = min(depth, 20U);
#endif
	reinit_completion(&walked);
	err = zoo_thread_start(&walker, kernel_recursion_walk);
	if (err)
		return err;
	wait_for_completion_timeout(&walked, 5 * HZ);
	zoo_thread_stop(&walker);
	return 0;
}

static const struct kernel_param_ops kernel_recursion_depth = {
	.set = kernel_recursion_set,
	.get = param_get_uint,
};
module_param_cb(depth, &kernel_recursion_depth, &depth, 0644);
MODULE_PARM_DESC(depth, "levels to descend");

static int __init kernel_recursion_init(void)
{
	return 0;
}

static void __exit kernel_recursion_exit(void)
{
}

module_init(kernel_recursion_init);
module_exit(kernel_recursion_exit);
MODULE_DESCRIPTION("zoo: recursion deeper than the stack");
