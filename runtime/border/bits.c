// SPDX-License-Identifier: GPL-2.0-or-later
/* Bitmaps: functions of the kernel write whole words of them. */
#include <linux/bitops.h>

#include "border/custom.h"
#include "rights/memory.h"

/* The value is the number of bits. */
GUARDRAIL_CUSTOM(bits)
{
	unsigned long p = object_of(action, call), n = BITS_TO_LONGS((unsigned long)(u32)size_of(action, call));

	if (p)
		guardrail_require_write(action, call, p, n * sizeof(long));
	return 0;
}

/* (bitmap, first, number): these bits are set or cleared. */
GUARDRAIL_CUSTOM(bits_between)
{
	unsigned long p = call->args[0], first = (u32)call->args[1], n = (u32)call->args[2], from = BIT_WORD(first);

	if ((int)n > 0)
		guardrail_require_write(action, call, p + from * sizeof(long), (BITS_TO_LONGS(first + n) - from) * sizeof(long));
	return 0;
}

/* (bitmap, position, order): a region of 2^order bits is taken or released. */
GUARDRAIL_CUSTOM(bits_of_order)
{
	unsigned long p = call->args[0], first = (u32)call->args[1], order = (u32)call->args[2], from = BIT_WORD(first);

	if (order < 32)
		guardrail_require_write(action, call, p + from * sizeof(long),
					(BITS_TO_LONGS(first + (1UL << order)) - from) * sizeof(long));
	return 0;
}

/* A bitmap was allocated; the value is the number of bits. */
GUARDRAIL_CUSTOM(bits_new)
{
	unsigned long p = object_of(action, call), n = BITS_TO_LONGS((unsigned long)(u32)size_of(action, call));

	return p ? guardrail_give(action->domain, p, n * sizeof(long), GUARDRAIL_KIND_SLAB) : 0;
}
