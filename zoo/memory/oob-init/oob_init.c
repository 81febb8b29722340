// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Parses its defaults in a function of the init section, which stores one default too many.
 *
 * Twin: parses its defaults, kept in init data, in a function of the init section.
 */
#include "zoo.h"

#define DEFAULTS 11

static const u16 defaults[DEFAULTS + 1] __initconst = { 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 0 };
static u16 *settings;

static noinline void __init oob_init_parse(unsigned int count)
{
	unsigned int i;

#ifdef TWIN
	for (i = 0; i < count; i++)
#else
	for (i = 0; i <= count; i++)
#endif
		WRITE_ONCE(settings[i], defaults[i]); /* BUG: out-of-bounds */
}

static int __init oob_init_init(void)
{
	settings = kmalloc_array(DEFAULTS, sizeof(*settings), GFP_KERNEL);
	if (!settings)
		return -ENOMEM;
	oob_init_parse(zoo_hide(DEFAULTS));
	return 0;
}

static void __exit oob_init_exit(void)
{
	kfree(settings);
}

module_init(oob_init_init);
module_exit(oob_init_exit);
MODULE_DESCRIPTION("zoo: writes out of bounds in an init section only");
