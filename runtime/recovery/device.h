/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Restoring a device by its driver's own code for that, after a transaction that touched it was undone. */
#ifndef GUARDRAIL_RECOVERY_DEVICE_H
#define GUARDRAIL_RECOVERY_DEVICE_H

#include "base/kernel.h"
#include "guardrail_abi.h"

struct device_driver;

/**
 * guardrail_device_init() - Have transactions restore devices.
 */
void __init guardrail_device_init(void);

/**
 * guardrail_device_exit() - Forget all devices, and wait for what restores them. No guarded module is loaded any more.
 */
void guardrail_device_exit(void);

/**
 * guardrail_device_module() - Note the entries of a module, and its devices as they come; or forget them.
 * @guarded: The module.
 * @comes: It is loaded, and else unloaded.
 *
 * Context: Process.
 * Return: 0, or an error.
 */
int guardrail_device_module(const struct guardrail_module *guarded, bool comes);

/**
 * guardrail_device_domain() - Find the domain of a driver whose entries can be transactions.
 * @driver: The driver, or NULL.
 *
 * Context: Any.
 * Return: Its domain; 0 for other drivers.
 */
u32 guardrail_device_domain(const struct device_driver *driver);

/**
 * guardrail_device_checkpoint() - Note anew what its bus keeps for a device.
 * @name: Name of the device on its bus.
 *
 * Context: Process.
 * Return: 0; -ENODEV where no driver with transactions has such a device, -ESHUTDOWN where its domain is dead. -EOPNOTSUPP where
 * its bus keeps nothing that is noted, -EIO where it sleeps and does not wake, -ENOMEM without memory.
 */
int guardrail_device_checkpoint(const char *name);

/**
 * guardrail_device_restore() - Restore a device, as after a transaction that was undone.
 * @name: Name of the device on its bus.
 *
 * Where the driver's code fails, its domain is killed.
 *
 * Context: Process.
 * Return: 0; -ENODEV and -ESHUTDOWN as above, -EOPNOTSUPP where the driver has no code for it, -EIO where that fails.
 */
int guardrail_device_restore(const char *name);

#endif /* GUARDRAIL_RECOVERY_DEVICE_H */
