// SPDX-License-Identifier: GPL-2.0-or-later
/* Goes around without an end, with interrupts off, when its parameter is written. */
#include <linux/irqflags.h>
#include <linux/module.h>

static unsigned long turns;

static int endless_set(const char *value, const struct kernel_param *param)
{
	unsigned long flags;

	local_irq_save(flags);
	while (READ_ONCE(turns) != ~0UL)
		WRITE_ONCE(turns, (READ_ONCE(turns) + 1) % 1000);
	local_irq_restore(flags);
	return 0;
}

static const struct kernel_param_ops endless_ops = { .set = endless_set };
module_param_cb(begin, &endless_ops, NULL, 0200);

static int __init endless_init(void)
{
	return 0;
}

static void __exit endless_exit(void)
{
}

module_init(endless_init);
module_exit(endless_exit);
MODULE_DESCRIPTION("guardrail: a loop that nobody else can end");
MODULE_LICENSE("GPL");
