// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Virtio devices. The driver takes its buffers back from the device's queues and deletes them (freeze); then the device is
 * reset, and set up with new queues.
 *
 * Drivers that take no buffers back wait in freeze for what the device has to finish, without a limit: a stopped device
 * finishes nothing. So these are not restored.
 */
#include <linux/virtio.h>

#include "base/symbols.h"
#include "domain/imports.h"
#include "recovery/bus.h"
#include "recovery/device.h"
#include "recovery/virtqueue.h"

/* Nothing has to be kept; that something is has forget() called. */
static void *note(struct device *dev)
{
	return dev_to_virtio(dev);
}

/* The next driver of a device that was stopped has it start. */
static void forget(void *kept)
{
	guardrail_virtqueue_over(kept);
}

static void stop(struct device *dev)
{
	guardrail_virtqueue_stop(dev_to_virtio(dev));
}

static bool takes_back(const struct device *dev)
{
	u32 domain = guardrail_device_domain(dev->driver);

	return domain && guardrail_find_import(domain, guardrail_find_symbol("virtqueue_detach_unused_buf"));
}

static const char *restore(struct device *dev, void *kept)
{
	struct virtio_driver *driver = container_of(dev->driver, struct virtio_driver, driver);
	int (*freeze)(struct virtio_device *dev) = (void *)guardrail_find_symbol("virtio_device_freeze");
	int (*thaw)(struct virtio_device *dev) = (void *)guardrail_find_symbol("virtio_device_restore");

	if (!freeze || !thaw || !driver->freeze || !driver->restore || !takes_back(dev))
		return GUARDRAIL_NO_RESTORE;
	if (freeze(dev_to_virtio(dev)))
		return GUARDRAIL_RESTORE_FAILED;
	guardrail_virtqueue_over(dev_to_virtio(dev));
	return thaw(dev_to_virtio(dev)) ? GUARDRAIL_RESTORE_FAILED : NULL;
}

const struct guardrail_bus guardrail_bus_virtio = {
	.symbol = "virtio_bus", .note = note, .forget = forget, .stop = stop, .restore = restore,
};
