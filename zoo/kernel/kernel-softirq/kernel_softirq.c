// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer (softirq) descends a tree by recursion, as deep as the user says, on the stack of
 * interrupts.
 *
 * Twin: a timer (softirq) descends a tree by recursion on the stack of interrupts, and no deeper
 * than 20 levels.
 */
#include <linux/moduleparam.h>
#include "zoo.h"

static unsigned int depth;
static struct timer_list timer;
static DECLARE_COMPLETION(walked);

static noinline unsigned int kernel_softirq_descend(unsigned int level)
{
	volatile unsigned int path[64];

	path[0] = level; /* BUG: stack-overflow */
	if (level < depth)
		path[63] = kernel_softirq_descend(level + 1);
	else
		path[63] = 0;
	return path[0] + path[63];
}

static void kernel_softirq_expire(struct timer_list *t)
{
	zoo_sink = kernel_softirq_descend(1);
	complete(&walked);
}

static int kernel_softirq_set(const char *value, const struct kernel_param *parameter)
{
	int err = kstrtouint(value, 10, &depth);

	if (err)
		return err;
#ifdef TWIN
	depth = min(depth, 20U);
#endif
	reinit_completion(&walked);
	timer_setup(&timer, kernel_softirq_expire, 0);
	mod_timer(&timer, jiffies + 1);
	wait_for_completion_timeout(&walked, 5 * HZ);
	timer_delete_sync(&timer);
	return 0;
}

static const struct kernel_param_ops kernel_softirq_depth = {
	.set = kernel_softirq_set,
	.get = param_get_uint,
};
module_param_cb(depth, &kernel_softirq_depth, &depth, 0644);
MODULE_PARM_DESC(depth, "levels to descend");

static int __init kernel_softirq_init(void)
{
	return 0;
}

static void __exit kernel_softirq_exit(void)
{
}

module_init(kernel_softirq_init);
module_exit(kernel_softirq_exit);
MODULE_DESCRIPTION("zoo: recursion in a softirq, deeper than the stack of interrupts");
