// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a domain may call by pointer. Its own functions and those that it was granted have tags. What its modules import is
 * called through their thunks. The last are functions of the kernel that it can have come by (border/reach.c).
 */
#include "base/address.h"
#include "base/symbols.h"
#include "border/target.h"
#include "border/reach.h"
#include "domain/code.h"
#include "domain/imports.h"
#include "domain/module.h"
#include "report/report.h"
#include "rights/conflict.h"
#include "rights/tag.h"

unsigned long guardrail_target(u32 domain, unsigned long p)
{
	unsigned long call;

	if (!is_domain(domain) || !is_kernel_range(p, 1))
		return 0;
	if (guardrail_slot_holds(tag_of(p), domain, slot_mask(p, p + 1), GUARDRAIL_CALL))
		return p;
	call = guardrail_find_import(domain, p);
	if (call)
		return call;
	/* Inlined code reads pointers to other functions of the kernel in the kernel's structures. */
	return !guardrail_is_guarded(p) && guardrail_is_function(p) && guardrail_reaches(domain, p) ? p : 0;
}

static bool is_of_type(unsigned long function, u32 type)
{
	u32 own = guardrail_type_at(function);

	return !own || own == type;
}

void guardrail_require_call(const struct guardrail_action *action, const struct guardrail_call *call, const char *what,
			    unsigned long function, u32 type)
{
	if (!guardrail_target(action->domain, function))
		guardrail_refuse(action, call, what, function, guardrail_held_at(function, action->domain), "icall");
	else if (!is_of_type(function, type))
		guardrail_refuse(action, call, what, function, "icall of another type", "icall of the type that it is called by");
}

bool guardrail_check_call(u32 domain, unsigned long p)
{
	return guardrail_target(domain, p);
}
EXPORT_SYMBOL_GPL(guardrail_check_call);
