// SPDX-License-Identifier: GPL-2.0-or-later
/* Character devices with a minor number of their own (struct miscdevice). */
#include <linux/miscdevice.h>

#include "classes/classes.h"
#include "recovery/class.h"
#include "rights/kinds.h"
#include "rights/object.h"

static void unregister(const struct guardrail_held *held, struct guardrail_teardown *down)
{
	if (held->right != GUARDRAIL_OBJECT || held->type != GUARDRAIL_TYPE_MISCDEVICE || !held->state)
		return;
	misc_deregister((struct miscdevice *)held->start);
	guardrail_put_object(down->domain, held->start, GUARDRAIL_TYPE_MISCDEVICE, 0);
	down->released->miscdevices++;
}

static struct guardrail_recovery_class misc_class = {
	.name = "character devices",
	.unregister = unregister,
};

void __init guardrail_misc_register(void)
{
	guardrail_recovery_register(&misc_class);
}
