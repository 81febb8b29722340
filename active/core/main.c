// SPDX-License-Identifier: GPL-2.0-or-later
/* The module guardrail_active. */
#include <linux/module.h>

#include "active_pci.h"
#include "domain.h"

/* The runtime of guarded drivers has these numbers: runtime/classes/active.c, and knowledge/active/rights.txt. */
static_assert(offsetof(struct active, priv) == 8);
static_assert(offsetof(struct active_message, pointer) == 16 && offsetof(struct active_message, number) == 24);
static_assert(offsetof(struct active_pci_driver, main) == 16 && offsetof(struct active_pci_driver, attach) == 40);
static_assert(offsetof(struct active_pci_driver, detach) == 64 && offsetof(struct active_pci_driver, driver) == 80);
static_assert(offsetof(struct active_role, emitted) == 8 && offsetof(struct active_role, refused) == 16);
static_assert(sizeof(struct active_role) == 24 && sizeof(struct active_message) == 32);
static_assert(offsetof(struct active_request, done) == 32 && sizeof(struct active_request) == 48 + sizeof(struct completion));

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
