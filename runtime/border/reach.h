/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which pointers to things of the kernel a domain may pass to it, and call. */
#ifndef GUARDRAIL_BORDER_REACH_H
#define GUARDRAIL_BORDER_REACH_H

#include "border/action.h"
#include "rights/received.h"

/**
 * is_reached() - Test for the usual case of a reference: a search has found it a short time ago.
 * @action: Action that requires it.
 * @call: Call registers.
 * @as: What it has to be: 0, REACHED_DEVICE or REACHED_NAPI.
 *
 * Return: False in all other cases, and while a domain is dead.
 */
static __always_inline bool is_reached(const struct guardrail_action *action, const struct guardrail_call *call, unsigned int as)
{
	struct guardrail_receipts *of = receipts_of(action->domain);
	unsigned long p;

	if (!of || action->when != GUARDRAIL_ALWAYS || action->pointer.kind != GUARDRAIL_VALUE_WORD)
		return false;
	/* What was noted is neither NULL nor an error. */
	p = word_of(call, action->pointer.word);
	return is_fresh(of, p + as) && !READ_ONCE(guardrail_dead_domains);
}

/**
 * guardrail_require_ref() - Require memory of the domain's own, or what it can have come by.
 * @action: The action.
 * @call: Call registers.
 * @p: Its first byte; nothing is required of NULL and errors.
 * @n: As many bytes as memory of the domain's own has to have.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_require_ref(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p, unsigned long n);

/**
 * guardrail_reaches() - Test whether a domain can have come by a pointer.
 * @domain: The domain.
 * @p: The pointer: to memory of the kernel or to a function.
 *
 * It can if it has received a pointer into the same piece of memory, or imports the variable. Arguments of the entries that
 * the task is in count as received. So do pointers in the kernel's memory behind one of these.
 *
 * Context: Any but NMI.
 * Return: True where it can.
 */
bool guardrail_reaches(u32 domain, unsigned long p);

#endif /* GUARDRAIL_BORDER_REACH_H */
