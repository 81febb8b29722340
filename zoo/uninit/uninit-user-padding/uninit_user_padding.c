// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fills every member of a local struct and copies it to user space, padding and all.
 *
 * Twin: clears a local struct, fills its members and copies it to user space.
 */
#include "zoo.h"

struct reply {
	u8 version;
	u32 length;
	u8 status;
	u64 cookie;
};

static u32 opens;

static noinline ssize_t uninit_user_padding_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	struct reply r;

	if (*pos || count < sizeof(r))
		return 0;
#ifdef TWIN
	memset(&r, 0, sizeof(r));
#endif
	r.version = zoo_hide(1);
	r.length = ++opens;
	r.status = zoo_hide(2);
	r.cookie = 0x1234;
	if (copy_to_user(buf, &r, sizeof(r))) /* BUG: uninit-to-user */
		return -EFAULT;
	*pos += sizeof(r);
	return sizeof(r);
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.read = uninit_user_padding_read,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "zoo",
	.fops = &fops,
};

module_misc_device(device);
MODULE_DESCRIPTION("zoo: copies the padding of a local struct to user space");
