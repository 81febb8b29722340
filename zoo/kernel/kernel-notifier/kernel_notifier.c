// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A notifier counts events of network devices by number, which begin at 1; the table has no place
 * for the last.
 *
 * Twin: a notifier counts events of network devices by number, which begin at 1; the table has a
 * place for each.
 */
#include <linux/netdevice.h>
#include "zoo.h"

/* The slot has 64 bytes. */
#ifdef TWIN
#define EVENTS (NETDEV_REGISTER + 1)
#else
#define EVENTS NETDEV_REGISTER
#endif

static unsigned long *counts;

static noinline void kernel_notifier_count(unsigned long event)
{
	counts[event]++; /* BUG: out-of-bounds */
}

/* A new notifier is notified of the devices that exist already. */
static int kernel_notifier_call(struct notifier_block *block, unsigned long event, void *data)
{
	if (event <= NETDEV_REGISTER)
		kernel_notifier_count(event);
	return NOTIFY_DONE;
}

static struct notifier_block kernel_notifier_block = {
	.notifier_call = kernel_notifier_call,
};

static int __init kernel_notifier_init(void)
{
	int err;

	counts = kcalloc(EVENTS, sizeof(*counts), GFP_KERNEL);
	if (!counts)
		return -ENOMEM;
	err = register_netdevice_notifier(&kernel_notifier_block);
	if (err)
		kfree(counts);
	return err;
}

static void __exit kernel_notifier_exit(void)
{
	unregister_netdevice_notifier(&kernel_notifier_block);
	zoo_sink = counts[NETDEV_UP];
	kfree(counts);
}

module_init(kernel_notifier_init);
module_exit(kernel_notifier_exit);
MODULE_DESCRIPTION("zoo: a notifier counts behind its table");
