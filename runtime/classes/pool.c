// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pools of allocations, and sets of bios that consist of them. The kernel follows the pointers in them, writes to where they
 * lead and calls their functions. In the driver's memory a pool is an object from when the kernel has set it up until it has
 * torn it down, and elsewhere it is the kernel's. So the driver may write to no byte of one that it passes.
 */
#include <linux/mempool.h>
#include <linux/string.h>

#include "border/check.h"
#include "border/custom.h"
#include "report/report.h"
#include "rights/memory.h"

static bool writes_any(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long at;

	for (at = p; at < p + n; at++)
		if (guardrail_check_write(domain, at, 1) || guardrail_may_write_stack(at, 1))
			return true;
	return false;
}

/* A set of pools is no array of them. */
static bool is_pool(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long own = guardrail_check_object(domain, p, GUARDRAIL_TYPE_POOL) ? GUARDRAIL_SLOT : 0;

	return !guardrail_find_object(domain, p + own, n - own) && !writes_any(domain, p, n);
}

static void refuse(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p)
{
	guardrail_refuse(action, call, "use of a pool at", p, guardrail_held_at(p, action->domain), "one that the kernel has set up");
}

/* The value is the size of the structure, also below. */
GUARDRAIL_CUSTOM(require_pool)
{
	unsigned long p = object_of(action, call), n = size_of(action, call);

	if (p && n > GUARDRAIL_SLOT && !is_pool(action->domain, p, n))
		refuse(action, call, p);
	return 0;
}

GUARDRAIL_CUSTOM(pool_new)
{
	unsigned long p = object_of(action, call);

	return p ? guardrail_create_object(action->domain, p, size_of(action, call), GUARDRAIL_TYPE_POOL) : 0;
}

/* A pool that is torn down may also be one that never was set up, all zeros. It becomes an object first, so it stays so. */
GUARDRAIL_CUSTOM(pool_ends)
{
	unsigned long p = object_of(action, call), n = size_of(action, call);

	if (!p || n <= GUARDRAIL_SLOT || is_pool(action->domain, p, n))
		return 0;
	if (!guardrail_require_write(action, call, p, n))
		return 0;
	if (guardrail_find_object(action->domain, p, n) || guardrail_create_object(action->domain, p, n, GUARDRAIL_TYPE_POOL) ||
	    memchr_inv((void *)p, 0, n)) {
		guardrail_object_over(action->domain, p, n, GUARDRAIL_TYPE_POOL);
		refuse(action, call, p);
	}
	return 0;
}

/* What the kernel leaves in it, the driver may not pass again; zeros it may. */
GUARDRAIL_CUSTOM(pool_over)
{
	unsigned long p = object_of(action, call), n = size_of(action, call);

	if (p && guardrail_check_object(action->domain, p, GUARDRAIL_TYPE_POOL))
		memset((void *)p, 0, n);
	return guardrail_object_over(action->domain, p, n, GUARDRAIL_TYPE_POOL);
}
