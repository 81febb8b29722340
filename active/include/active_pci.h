/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Active drivers of PCI devices. */
#ifndef ACTIVE_PCI_H
#define ACTIVE_PCI_H

#include <linux/module.h>
#include <linux/pci.h>

#include "active.h"

/**
 * struct active_pci_driver - A driver. Each device gets a domain.
 * @name: Its name.
 * @ids: The devices.
 * @main: The main function.
 * @protocols: active_program_MAIN.
 * @priv_size: Bytes at a->priv.
 * @attach: Called before main runs: a class's wrapper takes its roles. May sleep and fail. May be NULL, as all below.
 * @bound: Called after the driver has emitted `probed`. May sleep and fail; `remove` follows then.
 * @leaving: Called before `remove` or `unplug` is sent, if @bound has not failed. May sleep.
 * @detach: Called when main has returned, and before the domain is freed. Not called where main does not return.
 * @data: The class's wrapper's own.
 * @driver: Filled in by active_pci_register().
 *
 * The device's driver data are the PCI wrapper's.
 */
struct active_pci_driver {
	const char *name;
	const struct pci_device_id *ids;
	void (*main)(struct active *a);
	const char *protocols;
	size_t priv_size;
	int (*attach)(struct active *a, struct pci_dev *pdev, const struct active_pci_driver *driver);
	int (*bound)(struct active *a, struct pci_dev *pdev);
	void (*leaving)(struct active *a, struct pci_dev *pdev);
	void (*detach)(struct active *a);
	const void *data;
	struct pci_driver driver;
};

/* Registers a driver. Context: May sleep. Return: 0 or an error. */
int active_pci_register(struct active_pci_driver *driver, struct module *owner);
/* Unregisters it. */
void active_pci_unregister(struct active_pci_driver *driver);
/* The domain of a device that a driver of ours is bound to, or NULL. */
struct active *active_pci_domain(struct pci_dev *pdev);

/* The functions of a module that is one driver. */
#define module_active_pci_driver(d) \
	static int __init active_##d##_init(void) { return active_pci_register(&d, THIS_MODULE); } \
	static void __exit active_##d##_exit(void) { active_pci_unregister(&d); } \
	module_init(active_##d##_init); \
	module_exit(active_##d##_exit)

#endif
