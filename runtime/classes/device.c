// SPDX-License-Identifier: GPL-2.0-or-later
/* Devices that a driver passes to the kernel, which does not check them. */
#include <linux/device.h>
#include <linux/platform_device.h>

#include "base/address.h"
#include "border/custom.h"
#include "report/report.h"

/* From its initialization on, a device has the kernel's one type for devices. */
static __always_inline bool is_device(const struct device *dev)
{
	return pointer_at(&dev->kobj.ktype) == platform_bus.kobj.ktype;
}

static noinline int device(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p;

	if (applies(action, call) && value_of(&action->pointer, call, &p) && !is_device((void *)p))
		guardrail_refuse(action, call, "use of", p, guardrail_held_at(p, action->domain), "object: a device");
	return 0;
}

GUARDRAIL_CUSTOM(device)
{
	unsigned long p;

	return likely(usual_pointer(action, call, &p) && is_device((void *)p)) ? 0 : device(action, call);
}
