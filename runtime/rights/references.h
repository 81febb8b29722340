/* SPDX-License-Identifier: GPL-2.0-or-later */
/* References to tasks, which inlined code of drivers counts. */
#ifndef GUARDRAIL_RIGHTS_REFERENCES_H
#define GUARDRAIL_RIGHTS_REFERENCES_H

#include "rights/tag.h"

/**
 * guardrail_is_reference() - Grant a store to a task's reference count.
 * @domain: Domain that stores.
 * @addr: First byte of the store.
 * @n: Its size in bytes.
 *
 * Context: Any but NMI.
 * Return: True for the count of a task that exists; the domain may write it from then on.
 */
bool guardrail_is_reference(u32 domain, unsigned long addr, unsigned long n);

/**
 * guardrail_tasks_forget() - Revoke all reference counts of a domain.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 */
void guardrail_tasks_forget(u32 domain);

#endif /* GUARDRAIL_RIGHTS_REFERENCES_H */
