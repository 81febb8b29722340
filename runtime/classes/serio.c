// SPDX-License-Identifier: GPL-2.0-or-later
/* Serial ports of mice and keyboards. */
#include "border/custom.h"

/* ps2_command(device, param, command): the number of bytes of the answer stands in the command (linux/libps2.h). */
GUARDRAIL_CUSTOM(ps2_received)
{
	unsigned long p = object_of(action, call), size = size_of(action, call) >> 8 & 0xf;

	if (p && size)
		guardrail_require_write(action, call, p, size);
	return 0;
}
