/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a domain may call by pointer. guardrail_abi.h declares the functions that modules call. */
#ifndef GUARDRAIL_BORDER_TARGET_H
#define GUARDRAIL_BORDER_TARGET_H

#include "base/kernel.h"

/**
 * guardrail_target() - Find what a call by pointer leads to.
 * @domain: Domain of the calling module.
 * @p: The pointer.
 *
 * Context: Any but NMI.
 * Return: The function to call: the thunk of an import, else @p. 0 where the domain may not call it.
 */
unsigned long guardrail_target(u32 domain, unsigned long p);

/**
 * guardrail_require_call() - Report a function that a domain may not give to others, who will call it.
 * @action: The action that is performed.
 * @call: The call that it belongs to.
 * @what: Stands before the address in the report.
 * @function: The function.
 * @type: The number of the type of functions by which they call it; 0 where that is not known.
 *
 * An entry brings what the type of its function says. So one that brings anything is not handed over as one of another type.
 *
 * Context: Any but NMI.
 */
void guardrail_require_call(const struct guardrail_action *action, const struct guardrail_call *call, const char *what,
			    unsigned long function, u32 type);

#endif /* GUARDRAIL_BORDER_TARGET_H */
