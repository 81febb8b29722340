// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Devices of virtio. They belong to the driver of their transport, such as virtio_pci, which another domain or none has. So
 * they stay when the domain of their own driver dies, and that driver cannot be asked to stop them. The transport's functions
 * are called through the device, since virtio may be a module that is not loaded.
 */
#include <linux/spinlock.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>

#include "base/limits.h"
#include "border/custom.h"
#include "classes/classes.h"
#include "recovery/class.h"
#include "recovery/virtqueue.h"

#define MOST 64

/**
 * struct probed - A device that a driver has.
 * @dev: The device, which is held; NULL where the place is free.
 * @domain: The driver's domain.
 */
static struct probed {
	struct virtio_device *dev;
	u32 domain;
} probed[MOST];
/* Protects probed. */
static DEFINE_SPINLOCK(probed_lock);

/* Changes the place of a device, or a free one, from @old to @new. False without one. */
static bool change(struct virtio_device *old, struct virtio_device *new, u32 domain)
{
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&probed_lock, flags);
	for (i = 0; i < MOST && (probed[i].dev != old || (old && probed[i].domain != domain)); i++)
		;
	if (i < MOST)
		probed[i] = (struct probed){ new, domain };
	spin_unlock_irqrestore(&probed_lock, flags);
	return i < MOST;
}

/* A driver gets a device. It is noted before probe(), since an entry that is ended leaves the device as far as it came. */
GUARDRAIL_CUSTOM(virtio_comes)
{
	struct virtio_device *dev = (struct virtio_device *)object_of(action, call);

	if (!dev)
		return 0;
	get_device(&dev->dev);
	if (!change(NULL, dev, action->domain)) {
		put_device(&dev->dev);
		guardrail_limit_reached(GUARDRAIL_LIMIT_DEVICES);
	}
	return 0;
}

/* A driver that is alive has stopped its device itself: in remove(), or in probe() before that returns an error. */
GUARDRAIL_CUSTOM(virtio_goes)
{
	struct virtio_device *dev = (struct virtio_device *)object_of(action, call);

	if (dev && !guardrail_is_dead(action->domain) && change(dev, NULL, action->domain))
		put_device(&dev->dev);
	return 0;
}

GUARDRAIL_CUSTOM(virtio_probed)
{
	return (int)call->result ? guardrail_custom_virtio_goes(action, call) : 0;
}

/* The device of a domain in the first place from @i on; NULL behind the last. It stays held. */
static struct virtio_device *next(u32 domain, unsigned int *i)
{
	struct virtio_device *dev = NULL;

	spin_lock_irq(&probed_lock);
	for (; *i < MOST && !dev; ++*i)
		if (probed[*i].domain == domain)
			dev = probed[*i].dev;
	spin_unlock_irq(&probed_lock);
	return dev;
}

static void silence(u32 domain)
{
	struct virtio_device *dev;
	unsigned int i = 0;

	while ((dev = next(domain, &i)))
		dev->config->reset(dev);
}

/* Nothing calls the driver any more, and no other driver has got the device yet. */
static void release_devices(u32 domain)
{
	struct virtio_device *dev;
	unsigned int i = 0;

	while ((dev = next(domain, &i))) {
		dev->config->del_vqs(dev);
		/* A transaction that was undone may have stopped it. */
		guardrail_virtqueue_over(dev);
		change(dev, NULL, domain);
		put_device(&dev->dev);
	}
}

static struct guardrail_recovery_class virtio = {
	.name = "virtio devices",
	.silence = silence,
	.release_devices = release_devices,
};

void __init guardrail_virtio_register(void)
{
	guardrail_recovery_register(&virtio);
}
