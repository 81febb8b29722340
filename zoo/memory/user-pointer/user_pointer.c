// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the caller's buffer through the user's pointer: the access faults (SMAP) and kills the
 * caller.
 *
 * Twin: reads the caller's buffer with the access functions.
 */
#include "zoo.h"

static noinline ssize_t user_pointer_write(struct file *file, const char __user *buf, size_t count, loff_t *pos)
{
	char command;

	if (!count)
		return 0;
#ifdef TWIN
	if (get_user(command, buf))
		return -EFAULT;
#else
	command = READ_ONCE(*(const char __force *)buf); /* BUG: user-pointer */
#endif
	zoo_sink = command;
	return count;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.write = user_pointer_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "zoo",
	.fops = &fops,
};

module_misc_device(device);
MODULE_DESCRIPTION("zoo: touches user memory without the access functions");
