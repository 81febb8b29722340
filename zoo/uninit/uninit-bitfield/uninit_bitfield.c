// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two of the three bit fields of one byte are set; the third decides.
 *
 * Twin: sets the three bit fields of one undefined byte one by one; after the last the byte is
 * defined.
 */
#include "zoo.h"

struct flags {
	u8 speed : 3;
	u8 duplex : 1;
	u8 paused : 4;
};

static noinline void uninit_bitfield_set(struct flags *f, unsigned int speed)
{
	f->speed = speed;
	f->duplex = 1;
#ifdef TWIN
	f->paused = 0;
#endif
}

static noinline void uninit_bitfield_use(const struct flags *f)
{
	if (f->speed == 5)
		zoo_sink = 1;
	if (f->paused) /* BUG: uninit-branch */
		zoo_sink++;
}

static int __init uninit_bitfield_init(void)
{
	struct flags *f = kmalloc(sizeof(*f), GFP_KERNEL);

	if (!f)
		return -ENOMEM;
	uninit_bitfield_set(f, zoo_hide(5));
	uninit_bitfield_use(f);
	kfree(f);
	return 0;
}

static void __exit uninit_bitfield_exit(void)
{
}

module_init(uninit_bitfield_init);
module_exit(uninit_bitfield_exit);
MODULE_DESCRIPTION("zoo: decides on a bit field that nobody set, in a byte whose other bits were");
