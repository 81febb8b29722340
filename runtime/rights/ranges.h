/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rights to ranges. guardrail_abi.h declares most of what ranges.c and walk.c do. */
#ifndef GUARDRAIL_RIGHTS_RANGES_H
#define GUARDRAIL_RIGHTS_RANGES_H

#include "rights/tag.h"

/**
 * guardrail_range_change() - Grant or revoke the right to write a range.
 * @domain: Domain whose rights change.
 * @p: First byte.
 * @n: Number of bytes.
 * @right: GUARDRAIL_WRITE or GUARDRAIL_READ.
 * @keep_objects: Objects that begin in the range stay; otherwise the domain loses them.
 *
 * Context: Any but NMI.
 * Return: 0; -EINVAL for a bad range or domain; -ENOMEM.
 */
int guardrail_range_change(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects);

/**
 * guardrail_first_denied() - Find the first byte that a domain may not write.
 * @domain: Domain to test.
 * @p: First byte of the range.
 * @n: Number of bytes.
 *
 * A buffer that holds such a byte is granted first; see rights/buffer.h.
 *
 * Context: Any but NMI.
 * Return: Its address, or @p + @n where the domain may write all.
 */
unsigned long guardrail_first_denied(u32 domain, unsigned long p, unsigned long n);

#endif /* GUARDRAIL_RIGHTS_RANGES_H */
