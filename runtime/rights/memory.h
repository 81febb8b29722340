/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Memory that a domain both owns and may write, as an allocation is. */
#ifndef GUARDRAIL_RIGHTS_MEMORY_H
#define GUARDRAIL_RIGHTS_MEMORY_H

#include "rights/kinds.h"
#include "rights/tag.h"

/**
 * guardrail_give() - Grant memory and note its size with its owner.
 * @domain: Domain that gets it.
 * @p: First byte.
 * @size: Number of bytes; 0 does nothing.
 * @kind: Kind of allocation.
 *
 * Context: Any but NMI.
 * Return: 0, -EINVAL or -ENOMEM.
 */
int guardrail_give(u32 domain, unsigned long p, unsigned long size, u32 kind);

/**
 * guardrail_take() - Revoke memory that guardrail_give() granted.
 * @domain: Domain that owns it.
 * @p: First byte.
 * @kind: Kind of allocation.
 *
 * Context: Any but NMI.
 * Return: False where no allocation of this kind begins there.
 */
bool guardrail_take(u32 domain, unsigned long p, u32 kind);

/**
 * guardrail_lend() - Grant memory for the time that an entry runs.
 * @domain: Domain that gets it, unless it may write the memory anyway.
 * @p: First byte, or 0 for none.
 * @size: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: 0, -EINVAL or -ENOMEM.
 */
int guardrail_lend(u32 domain, unsigned long p, unsigned long size);

/**
 * guardrail_object_over() - End an object and grant its memory.
 * @domain: Domain that holds it.
 * @p: Begin of the object, or 0 for none.
 * @size: Its size in bytes.
 * @type: Its type.
 *
 * Context: Any but NMI.
 * Return: 0, also where there is no such object; or -ENOMEM.
 */
int guardrail_object_over(u32 domain, unsigned long p, unsigned long size, u32 type);

#endif /* GUARDRAIL_RIGHTS_MEMORY_H */
