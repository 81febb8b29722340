// SPDX-License-Identifier: GPL-2.0-or-later
/* Devices that a driver passes to the kernel, which does not check them. */
#include <linux/device.h>
#include <linux/platform_device.h>

#include "base/address.h"
#include "border/custom.h"
#include "border/reach.h"
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

/* A device that the domain can have come by. */
GUARDRAIL_CUSTOM(device)
{
	return likely(is_reached(action, call, REACHED_DEVICE)) ? 0 : device(action, call);
}
