// SPDX-License-Identifier: GPL-2.0-or-later
/* Devices that a driver hands to the kernel, which takes them for what they are said to be. */
#include <linux/device.h>
#include <linux/platform_device.h>
#include <linux/uaccess.h>

#include "objects.h"

/* Devices are objects of the kernel's model of drivers from when they are initialized on, all of one type. */
static bool is_device(const struct device *dev)
{
	const struct kobj_type *type;

	return is_kernel_range((unsigned long)dev, sizeof(*dev)) && !get_kernel_nofault(type, &dev->kobj.ktype) &&
	       type == platform_bus.kobj.ktype;
}

GUARDRAIL_CUSTOM(device)
{
	unsigned long p;

	if (!guardrail_applies(action, frame) || !guardrail_value(&action->pointer, frame, &p) || is_device((void *)p))
		return 0;
	guardrail_refuse(action, frame, "use of", p, guardrail_held_at(p, action->domain), "object: a device");
	return 0;
}
