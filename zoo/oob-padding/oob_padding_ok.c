// SPDX-License-Identifier: GPL-2.0-or-later
/* Terminates a name of full length in an object that has room for the zero. */
#include "../zoo.h"

#define NAME 61

static char *name;

static noinline void oob_padding_set(unsigned int len)
{
	unsigned int i;

	for (i = 0; i < len; i++)
		WRITE_ONCE(name[i], 'a');
	name[len] = 0;
}

static int __init oob_padding_init(void)
{
	name = kmalloc(NAME + 1, GFP_KERNEL);
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
MODULE_DESCRIPTION("zoo: writes the last byte of its object, correct");
MODULE_LICENSE("GPL");
