/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of the current stack that guarded code may write. */
#ifndef GUARDRAIL_DOMAIN_STACK_H
#define GUARDRAIL_DOMAIN_STACK_H

#include "base/kernel.h"

/**
 * guardrail_on_stack() - Test for a range in the writable part of the current stack.
 * @addr: First byte.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: True where guarded code may use all of it.
 */
bool guardrail_on_stack(unsigned long addr, unsigned long n);

#endif /* GUARDRAIL_DOMAIN_STACK_H */
