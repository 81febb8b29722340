// SPDX-License-Identifier: GPL-2.0-or-later
/* Callbacks that run after a grace period of RCU. */
#include <linux/rcupdate.h>

#include "domain/code.h"
#include "border/custom.h"
#include "rights/memory.h"
#include "rights/object.h"

/* kfree_rcu(): with the object itself, or (up to 6.3) how far the head lies behind its begin. */
GUARDRAIL_CUSTOM(rcu_free)
{
	unsigned long p = object_of(action, call), object = call->args[1];
	u32 kind;

	if (object < PAGE_SIZE)
		object = p - object;
	for (kind = 1; kind < KIND_OWN; kind <<= 1)
		if (guardrail_take(action->domain, object, kind))
			return 0;
	guardrail_refuse(action, call, "release of", object, "no allocation", "an allocation that begins there");
	return 0;
}

/*
 * call_rcu(): the head is the kernel's until it calls the function, which is the value. If that is not the driver's
 * function, no action marks the end.
 */
GUARDRAIL_CUSTOM(rcu_waits)
{
	unsigned long p = object_of(action, call), function = size_of(action, call);

	if (!p || !guardrail_is_guarded(function))
		return 0;
	if (guardrail_check_object(action->domain, p, GUARDRAIL_TYPE_RCU_HEAD)) {
		if (!guardrail_rcu_is_over(p))
			guardrail_refuse_object(action, call, p, GUARDRAIL_TYPE_RCU_HEAD, 0);
	} else if (!guardrail_check_write(action->domain, p, sizeof(struct rcu_head)) ||
		   guardrail_create_object(action->domain, p, sizeof(struct rcu_head), GUARDRAIL_TYPE_RCU_HEAD)) {
		/* The head lies in a kernel object, or there is no memory to note it. */
		return 0;
	}
	guardrail_put_object(action->domain, p, GUARDRAIL_TYPE_RCU_HEAD, 1);
	return 0;
}

/* The kernel calls the function. */
GUARDRAIL_CUSTOM(rcu_over)
{
	return guardrail_object_over(action->domain, object_of(action, call), sizeof(struct rcu_head), GUARDRAIL_TYPE_RCU_HEAD);
}
