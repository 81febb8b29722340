// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A read of the device returns on its error path with the mutex held.
 *
 * Twin: a read of the device gives the mutex back on its error path.
 */
#include "zoo.h"

static DEFINE_MUTEX(lock);
static unsigned int ready;

static noinline ssize_t lock_held_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	mutex_lock(&lock); /* BUG: lock-held-at-return */
	if (!READ_ONCE(ready)) {
#ifdef TWIN
		mutex_unlock(&lock);
#endif
		return -ENODATA;
	}
	mutex_unlock(&lock);
	return 0;
}

static const struct file_operations lock_held_fops = {
	.owner = THIS_MODULE,
	.read = lock_held_read,
};

static struct miscdevice lock_held_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "zoo",
	.fops = &lock_held_fops,
};

static int __init lock_held_init(void)
{
	return misc_register(&lock_held_misc);
}

/* Nobody takes the mutex again. */
static void __exit lock_held_exit(void)
{
	misc_deregister(&lock_held_misc);
}

module_init(lock_held_init);
module_exit(lock_held_exit);
MODULE_DESCRIPTION("zoo: returns to user space with a mutex held");
