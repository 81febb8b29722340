// SPDX-License-Identifier: GPL-2.0-or-later
/* Devices that a driver passes to the kernel, which does not check them. */
#include <linux/device.h>
#include <linux/platform_device.h>

#include "base/address.h"
#include "border/custom.h"
#include "border/reach.h"
#include "border/target.h"
#include "report/report.h"

/* From its initialization on, a device has the kernel's one type for devices. */
static __always_inline bool is_device(const struct device *dev)
{
	return pointer_at(&dev->kobj.ktype) == platform_bus.kobj.ktype;
}

static noinline int device(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_receipts *of = receipts_of(action->domain);
	unsigned long p;

	stop_dead(action, call);
	if (!applies(action, call) || !value_of(&action->pointer, call, &p))
		return 0;
	guardrail_require_ref(action, call, p, sizeof(struct device));
	if (!is_device((void *)p))
		guardrail_refuse(action, call, "use of", p, guardrail_held_at(p, action->domain), "object: a device");
	else if (of && is_fresh(of, p))
		reached_now(of, p + REACHED_DEVICE);
	return 0;
}

static void require_target(const struct guardrail_action *action, const struct guardrail_call *call, const void *function)
{
	unsigned long p = (unsigned long)function;

	if (p && !guardrail_target(action->domain, p))
		guardrail_refuse(action, call, "release of a device by", p, guardrail_held_at(p, action->domain), "icall");
}

/*
 * A device in the driver's own memory has a type and a class that name the functions that release it, if it does not itself;
 * and a parent, which the kernel counts. The driver may change them after they were looked at; that race is not closed.
 */
static void require_own(const struct guardrail_action *action, const struct guardrail_call *call, const struct device *dev)
{
	const struct device *parent = pointer_at(&dev->parent);
	const struct device_type *type = pointer_at(&dev->type);
	const struct class *class = pointer_at(&dev->class);

	if (type)
		require_target(action, call, pointer_at(&type->release));
	if (class)
		require_target(action, call, pointer_at(&class->dev_release));
	if (parent && !is_device(parent))
		guardrail_refuse(action, call, "use of a device with the parent", (unsigned long)parent,
				 guardrail_held_at((unsigned long)parent, action->domain), "object: a device");
}

/* A device whose reference is dropped, or that is used in a way that reaches its parent. */
GUARDRAIL_CUSTOM(device_sound)
{
	unsigned long p;

	if (likely(is_reached(action, call, REACHED_DEVICE)))
		return 0;
	device(action, call);
	p = object_of(action, call);
	if (p && guardrail_check_write(action->domain, p, sizeof(struct device)))
		require_own(action, call, (struct device *)p);
	return 0;
}

/* A device that the domain can have come by. */
GUARDRAIL_CUSTOM(device)
{
	return likely(is_reached(action, call, REACHED_DEVICE)) ? 0 : device(action, call);
}
