// SPDX-License-Identifier: GPL-2.0-or-later
/* Ranges of addresses of devices that drivers reserve and release. */
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
