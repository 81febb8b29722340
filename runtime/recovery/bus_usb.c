// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Interfaces of USB devices. A reset of the device's port loses what it has under way; the driver's functions around it
 * (pre_reset, post_reset) end that, and set the device up. The kernel resets no device that is asleep.
 */
#include <linux/pm_runtime.h>
#include <linux/usb.h>

#include "base/symbols.h"
#include "recovery/bus.h"

static struct device *locked(struct device *dev)
{
	return dev->parent;
}

static const char *restore(struct device *dev, void *kept)
{
	struct usb_driver *driver = dev->type && !strcmp(dev->type->name, "usb_interface") ? to_usb_driver(dev->driver) : NULL;
	int (*reset)(struct usb_device *dev) = (void *)guardrail_find_symbol("usb_reset_device");
	int err;

	if (!driver || !driver->pre_reset || !driver->post_reset || !reset)
		return "its driver would lose it at a reset of its port, since it has no pre_reset and post_reset";
	err = pm_runtime_get_sync(dev->parent);
	if (err >= 0)
		err = reset(to_usb_device(dev->parent));
	pm_runtime_put_autosuspend(dev->parent);
	/* The kernel takes a device from a driver whose functions fail, and binds it anew. */
	return err || !dev->driver ? GUARDRAIL_RESTORE_FAILED : NULL;
}

const struct guardrail_bus guardrail_bus_usb = { .symbol = "usb_bus_type", .locked = locked, .restore = restore };
