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

#endif /* GUARDRAIL_BORDER_TARGET_H */
