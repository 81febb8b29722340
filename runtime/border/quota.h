/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How much memory a domain may own. */
#ifndef GUARDRAIL_BORDER_QUOTA_H
#define GUARDRAIL_BORDER_QUOTA_H

#include "base/kernel.h"

/* The module parameter: MiB for each domain; 0 for no limit. */
extern unsigned int guardrail_quota;

/**
 * guardrail_ask_quota() - Report an allocation beyond the quota.
 * @action: Action of the function that allocated.
 * @frame: Its call registers.
 * @p: Begin of the allocation.
 * @size: Its size in bytes.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_ask_quota(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p,
			 unsigned long size);

/**
 * guardrail_check_quota() - Check the quota after an allocation, if there is one.
 * @action: Action of the function that allocated.
 * @frame: Its call registers.
 * @p: Begin of the allocation.
 * @size: Its size in bytes.
 *
 * Context: That of the entry. May not return.
 */
static inline void guardrail_check_quota(const struct guardrail_action *action, const struct guardrail_call *call,
					 unsigned long p, unsigned long size)
{
	if (unlikely(READ_ONCE(guardrail_quota)))
		guardrail_ask_quota(action, call, p, size);
}

#endif /* GUARDRAIL_BORDER_QUOTA_H */
