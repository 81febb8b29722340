// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory that a domain both owns and may write; rights/memory.h describes it. */
#include "rights/memory.h"
#include "rights/object.h"

int guardrail_give(u32 domain, unsigned long p, unsigned long size, u32 kind)
{
	int err;

	if (!size)
		return 0;
	err = guardrail_grant_fresh(domain, p, size);
	if (err)
		return err;
	/* The allocation that was there before was freed in a way that no action shows. */
	guardrail_forget_owner(domain, p);
	return guardrail_own(domain, p, size, kind);
}

bool guardrail_take(u32 domain, unsigned long p, u32 kind)
{
	unsigned long size;

	if (!guardrail_check_owner(domain, p, kind, &size) || guardrail_disown(domain, p, kind))
		return false;
	guardrail_revoke(domain, p, size);
	return true;
}

int guardrail_lend(u32 domain, unsigned long p, unsigned long size)
{
	if (!p || !size || guardrail_check_write(domain, p, size))
		return 0;
	return guardrail_give(domain, p, size, KIND_LENT);
}

int guardrail_object_over(u32 domain, unsigned long p, unsigned long size, u32 type)
{
	if (!p || guardrail_destroy_object(domain, p, type))
		return 0;
	return guardrail_grant_fresh(domain, p, size);
}
