// SPDX-License-Identifier: GPL-2.0-or-later
/* The module guardrail_active. */
#include <linux/module.h>

#include "domain.h"

static int __init active_init(void)
{
	int err = active_traces_start();

	if (err)
		return err;
	return active_monitor_start();
}

static void __exit active_exit(void)
{
	active_monitor_stop();
	active_traces_stop();
}

module_init(active_init);
module_exit(active_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Drivers that talk to the kernel by messages");
