// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ends a message with a byte behind the memory asked for; the slot that it lies in has room for
 * more.
 *
 * Twin: ends a message with the last byte of the memory asked for; the slot that it lies in has
 * room for more.
 */
#include "zoo.h"

/* The slot has 256 bytes. */
#define LENGTH 200

static u8 *message;

static noinline void kernel_slack_end(u8 *m, unsigned int length)
{
	WRITE_ONCE(m[length], 1); /* BUG: out-of-bounds */
}

static int __init kernel_slack_init(void)
{
	message = kmalloc(LENGTH, GFP_KERNEL);
	if (!message)
		return -ENOMEM;
#ifdef TWIN
	kernel_slack_end(message, zoo_hide(LENGTH) - 1);
#else
	kernel_slack_end(message, zoo_hide(LENGTH));
#endif
	return 0;
}

static void __exit kernel_slack_exit(void)
{
	kfree(message);
}

module_init(kernel_slack_init);
module_exit(kernel_slack_exit);
MODULE_DESCRIPTION("zoo: writes behind what was asked of kmalloc, inside the slot");
