/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What a domain holds, counted. guardrail_abi.h declares guardrail_walk() and guardrail_revoke_all(). */
#ifndef GUARDRAIL_RIGHTS_WALK_H
#define GUARDRAIL_RIGHTS_WALK_H

#include "base/kernel.h"

/**
 * struct guardrail_held_counts - What a domain holds.
 * @ranges: Writable ranges.
 * @bytes: Bytes in them.
 * @targets: Call targets.
 * @objects: Objects.
 * @owned: Owned allocations.
 * @owned_bytes: Bytes in them.
 */
struct guardrail_held_counts {
	unsigned long ranges, bytes, targets, objects, owned, owned_bytes;
};

/**
 * guardrail_count_held() - Count what a domain holds.
 * @domain: The domain.
 * @counts: Gets the counts.
 *
 * Context: May sleep.
 */
void guardrail_count_held(u32 domain, struct guardrail_held_counts *counts);

#endif /* GUARDRAIL_RIGHTS_WALK_H */
