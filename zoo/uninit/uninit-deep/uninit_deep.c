// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The mode is never set; it is copied with its struct, masked, and handed through two functions
 * before it decides.
 *
 * Twin: only the upper half of the mode is set; the copy carries both halves, and the mask keeps
 * the one that was set.
 */
#include "zoo.h"

struct config {
	u32 id;
	u8 mode;
	u8 spare[3];
	u64 window;
};

#ifdef TWIN
#define MODE_MASK 0xf0
#else
#define MODE_MASK 0x0f
#endif

static struct config *template, *active;

static noinline void uninit_deep_fill(struct config *c)
{
	c->id = 7;
#ifdef TWIN
	/* Sets the upper four bits alone. */
	c->mode = (c->mode & 0x0f) | 0x30;
#endif
	c->window = 4096;
}

static noinline void uninit_deep_apply(unsigned int mode)
{
	if (mode == zoo_hide(3u)) /* BUG: uninit-branch */
		zoo_sink++;
	zoo_sink = 1;
}

static noinline void uninit_deep_select(unsigned int mode)
{
	uninit_deep_apply(zoo_hide(mode + 1) - 1);
	zoo_sink = 2;
}

static noinline void uninit_deep_start(void)
{
	*active = *template;
	uninit_deep_select(READ_ONCE(active->mode) & MODE_MASK);
}

static int __init uninit_deep_init(void)
{
	template = kmalloc(sizeof(*template), GFP_KERNEL);
	active = kmalloc(sizeof(*active), GFP_KERNEL);
	if (template && active) {
		uninit_deep_fill(template);
		uninit_deep_start();
	}
	return 0;
}

static void __exit uninit_deep_exit(void)
{
	kfree(active);
	kfree(template);
}

module_init(uninit_deep_init);
module_exit(uninit_deep_exit);
MODULE_DESCRIPTION("zoo: an undefined value travels through a copy, a mask and two calls to a branch");
