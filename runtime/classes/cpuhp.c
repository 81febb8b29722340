// SPDX-License-Identifier: GPL-2.0-or-later
/* States of the hotplug of processors that drivers set up. */
#include <linux/string.h>

#include "border/custom.h"
#include "domain/registrations.h"

/* __cpuhp_setup_state(state, …): the result is the new state where the kernel chooses it, else 0. */
GUARDRAIL_CUSTOM(cpu_state)
{
	struct guardrail_registration made = { .domain = action->domain, .n = 2 };
	int result = (int)call->result;

	if (result < 0)
		return 0;
	/* The driver's functions are not called for it. */
	made.args[0] = result ?: (int)call->args[0];
	strscpy(made.function, action->function, sizeof(made.function));
	strscpy(made.inverse, "__cpuhp_remove_state", sizeof(made.inverse));
	guardrail_registration_note(&made);
	return 0;
}
