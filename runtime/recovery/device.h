/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Restoring a device by its driver's own power management, after a transaction that touched it was undone. */
#ifndef GUARDRAIL_RECOVERY_DEVICE_H
#define GUARDRAIL_RECOVERY_DEVICE_H

#include "base/kernel.h"

/**
 * guardrail_device_init() - Begin to note the configuration of devices whose drivers have transactions.
 *
 * Return: 0, or an error.
 */
int __init guardrail_device_init(void);

/**
 * guardrail_device_exit() - Forget all configurations, and wait for what restores devices.
 */
void guardrail_device_exit(void);

#endif /* GUARDRAIL_RECOVERY_DEVICE_H */
