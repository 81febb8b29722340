// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fills the beginning of a heap buffer and copies all that the caller asked for.
 *
 * Twin: fills the beginning of a heap buffer and copies that much, whatever the caller asked for.
 */
#include "zoo.h"

#define SIZE 120

static noinline size_t uninit_user_heap_fill(char *log)
{
	return scnprintf(log, SIZE, "state %d errors %d\n", zoo_hide(3), zoo_hide(0));
}

static noinline ssize_t uninit_user_heap_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	size_t filled, n;
	ssize_t result;
	char *log;

	if (*pos)
		return 0;
	log = kmalloc(SIZE, GFP_KERNEL);
	if (!log)
		return -ENOMEM;
	filled = uninit_user_heap_fill(log);
#ifdef TWIN
	n = min_t(size_t, count, filled);
#else
	n = min_t(size_t, count, SIZE);
#endif
	result = filled && n ? n : 0;
	if (copy_to_user(buf, log, n)) /* BUG: uninit-to-user */
		result = -EFAULT;
	kfree(log);
	if (result > 0)
		*pos += result;
	return result;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.read = uninit_user_heap_read,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "zoo",
	.fops = &fops,
};

module_misc_device(device);
MODULE_DESCRIPTION("zoo: copies more of a heap buffer to user space than was filled");
