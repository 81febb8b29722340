// SPDX-License-Identifier: GPL-2.0-or-later
/* What drivers give back, which must be theirs, and registers that functions write for them. */
#include "border/custom.h"
#include "domain/registrations.h"

/* __release_region(parent, start, bytes): the domain must have reserved just these. */
GUARDRAIL_CUSTOM(region_given)
{
	struct guardrail_registration made = {
		.domain = action->domain, .n = 3, .args = { call->args[0], call->args[1], call->args[2] }, .inverse = "__release_region",
	};

	if (!guardrail_registration_is_made(&made))
		guardrail_refuse(action, call, "release of the region at", call->args[1], "no such region", "a reserved one");
	return 0;
}

/* module_put(module): the domain must have counted a use of it. */
GUARDRAIL_CUSTOM(module_counted)
{
	struct guardrail_registration made = { .domain = action->domain, .n = 1, .args = { call->args[0] }, .inverse = "module_put" };

	if (call->args[0] && !guardrail_registration_is_made(&made))
		guardrail_refuse(action, call, "release of the module at", call->args[0], "no use of it", "a counted one");
	return 0;
}

/* What lib/iomap.c takes for the number of a port, or for none, and not for an address. */
#define PORTS 0x40000UL

/* iowrite32(value, addr) and the like write to a register, which has the right to be written, or to a port. */
GUARDRAIL_CUSTOM(register_written)
{
	unsigned long p = object_of(action, call);

	if (p >= PORTS)
		guardrail_require_write(action, call, p, size_of(action, call));
	return 0;
}
