// SPDX-License-Identifier: GPL-2.0-or-later
/* Mice and keyboards on serial ports. The driver finds its device anew (reconnect), as after a suspend. */
#include <linux/serio.h>

#include "recovery/bus.h"

static const char *restore(struct device *dev, void *kept)
{
	struct serio *port = to_serio_port(dev);
	struct serio_driver *driver = to_serio_driver(dev->driver);
	int err;

	if (!driver->reconnect)
		return GUARDRAIL_NO_RESTORE;
	mutex_lock(&port->drv_mutex);
	err = driver->reconnect(port);
	mutex_unlock(&port->drv_mutex);
	return err ? GUARDRAIL_RESTORE_FAILED : NULL;
}

const struct guardrail_bus guardrail_bus_serio = { .symbol = "serio_bus", .restore = restore };
