/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which pointers to things of the kernel a domain may pass to it, and call. */
#ifndef GUARDRAIL_BORDER_REACH_H
#define GUARDRAIL_BORDER_REACH_H

#include "base/kernel.h"

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
