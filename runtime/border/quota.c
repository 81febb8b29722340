// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The quota of a domain. An allocation beyond it is a violation, reported after the allocation. The domain owns the
 * memory until it releases it, so a recovery frees all of it.
 */
#include <linux/moduleparam.h>

#include "border/quota.h"
#include "rights/object.h"

unsigned int guardrail_quota;
module_param_named(quota, guardrail_quota, uint, 0644);
MODULE_PARM_DESC(quota, "how much memory the modules of a domain may allocate together, in MiB (0: as much as there is)");

void guardrail_ask_quota(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p, unsigned long size)
{
	unsigned long most = (unsigned long)READ_ONCE(guardrail_quota) << 20, owned;
	char what[64], holds[32], needs[32];

	owned = guardrail_owned_bytes(action->domain);
	if (!most || owned <= most)
		return;
	scnprintf(what, sizeof(what), "allocation of %lu bytes beyond the quota at", size);
	scnprintf(holds, sizeof(holds), "%lu KiB", owned >> 10);
	scnprintf(needs, sizeof(needs), "quota of %lu KiB", most >> 10);
	guardrail_refuse(action, call, what, p, holds, needs);
}
