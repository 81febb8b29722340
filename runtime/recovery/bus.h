/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How a device is restored on its bus. Each bus is one file, bus_NAME.c, and a line in recovery/device.c. */
#ifndef GUARDRAIL_RECOVERY_BUS_H
#define GUARDRAIL_RECOVERY_BUS_H

#include <linux/device.h>

/**
 * struct guardrail_bus - A bus whose devices can be restored.
 * @symbol: The kernel's symbol of its bus_type.
 * @note: Note what the driver's own code does not restore, when it has bound a device, whose lock is held. Returns what is
 *	kept, or NULL. May be NULL.
 * @forget: Free what was kept.
 * @renews: What is noted may be noted anew while the driver has the device.
 * @locked: The device whose lock keeps the driver bound; NULL where that is the device itself.
 * @stop: Have the device reach no memory any more. In any context but NMI. May be NULL.
 * @restore: Set the device up anew from what its driver has in memory. The lock is held, and the driver's domain lives.
 *	Returns NULL, or in words why that cannot be done. May sleep.
 */
struct guardrail_bus {
	const char *symbol;
	void *(*note)(struct device *dev);
	void (*forget)(void *kept);
	bool renews;
	struct device *(*locked)(struct device *dev);
	void (*stop)(struct device *dev);
	const char *(*restore)(struct device *dev, void *kept);
};

extern const struct guardrail_bus guardrail_bus_pci;
extern const struct guardrail_bus guardrail_bus_usb;
extern const struct guardrail_bus guardrail_bus_virtio;
extern const struct guardrail_bus guardrail_bus_serio;

/* What restore() says. */
#define GUARDRAIL_NO_RESTORE "its driver has no code that saves and restores it"
#define GUARDRAIL_RESTORE_FAILED "its driver's code that saves and restores it has failed"

#endif /* GUARDRAIL_RECOVERY_BUS_H */
