// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Looks a name up by an index that is checked with > instead of >=.
 *
 * Twin: looks a name up by an index that is checked as it should be.
 */
#include "zoo.h"

#define SPEEDS 9

/* Each aligned, so that bytes that belong to no symbol follow the array. */
static u32 speeds[SPEEDS] __aligned(64) = { 10, 20, 50, 100, 200, 500, 1000, 2000, 5000 };
static u32 fallback __aligned(64) = 1;

static noinline u32 oob_data_speed(unsigned int index)
{
#ifdef TWIN
	if (index >= SPEEDS)
#else
	if (index > SPEEDS)
#endif
		return READ_ONCE(fallback);
	return READ_ONCE(speeds[index]); /* BUG: out-of-bounds */
}

static int __init oob_data_init(void)
{
	unsigned int i;

	for (i = 0; i <= SPEEDS; i++)
		zoo_sink = oob_data_speed(zoo_hide(i));
	/* Writes keep both in the data section. */
	WRITE_ONCE(speeds[0], 11);
	WRITE_ONCE(fallback, 2);
	return 0;
}

static void __exit oob_data_exit(void)
{
}

module_init(oob_data_init);
module_exit(oob_data_exit);
MODULE_DESCRIPTION("zoo: reads past an initialized array of the module");
