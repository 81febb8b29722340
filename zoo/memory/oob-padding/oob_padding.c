// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Terminates a name of full length: the zero goes one byte past the object, into bytes the slab
 * pads it with.
 *
 * Twin: terminates a name of full length in an object that has room for the zero.
 */
#include "zoo.h"

#define NAME 61

static char *name;

static noinline void oob_padding_set(unsigned int len)
{
	unsigned int i;

	for (i = 0; i < len; i++)
		WRITE_ONCE(name[i], 'a');
	name[len] = 0; /* BUG: out-of-bounds */
}

static int __init oob_padding_init(void)
{
#ifdef TWIN
	name = kmalloc(NAME + 1, GFP_KERNEL);
#else
	name = kmalloc(NAME, GFP_KERNEL);
#endif
	if (!name)
		return -ENOMEM;
	oob_padding_set(zoo_hide(NAME));
	return 0;
}

static void __exit oob_padding_exit(void)
{
	kfree(name);
}

module_init(oob_padding_init);
module_exit(oob_padding_exit);
MODULE_DESCRIPTION("zoo: writes one byte past its object, inside the slab's padding");
