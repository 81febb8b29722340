// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Unload cancels the work item of a feature that was never set up. The kernel warns about a work item without
 * a function.
 *
 * Twin: sets up the work item in any case.
 */
#include "zoo.h"

static struct work_struct report;

#ifdef TWIN
static void kernel_warn_report(struct work_struct *work)
{
	zoo_sink = 1;
}
#endif

static noinline void kernel_warn_stop(void)
{
	cancel_work_sync(&report); /* BUG: kernel-warning */
}

static int __init kernel_warn_init(void)
{
#ifdef TWIN
	INIT_WORK(&report, kernel_warn_report);
#endif
	return 0;
}

static void __exit kernel_warn_exit(void)
{
	kernel_warn_stop();
}

module_init(kernel_warn_init);
module_exit(kernel_warn_exit);
MODULE_DESCRIPTION("zoo: cancels a work item that was never set up");
