// SPDX-License-Identifier: GPL-2.0-or-later
/* Sets the three bit fields of one undefined byte one by one; after the last the byte is defined. */
#include "../zoo.h"

struct flags {
	u8 speed : 3;
	u8 duplex : 1;
	u8 paused : 4;
};

static noinline void uninit_bitfield_set(struct flags *f, unsigned int speed)
{
	f->speed = speed;
	f->duplex = 1;
	f->paused = 0;
}

static noinline void uninit_bitfield_use(const struct flags *f)
{
	if (f->speed == 5)
		zoo_sink = 1;
	if (f->paused)
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
MODULE_DESCRIPTION("zoo: sets every bit field of an undefined byte one by one, correct");
MODULE_LICENSE("GPL");
