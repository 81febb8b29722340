// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The read and write calls of a device node share a position; write forgets the mutex.
 *
 * Twin: the read and write calls of a device node share a position under a mutex.
 */
#include "race.h"

static DEFINE_MUTEX(mutex);
static unsigned long position;

static noinline ssize_t race_process_process_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	if (mutex_lock_interruptible(&mutex))
		return -ERESTARTSYS;
	position++; /* OTHER: */
	mutex_unlock(&mutex);
	return 0;
}

static noinline ssize_t race_process_process_write(struct file *file, const char __user *buf, size_t count, loff_t *pos)
{
#ifdef TWIN
	mutex_lock(&mutex);
#endif
	position += count; /* BUG: data-race */
#ifdef TWIN
	mutex_unlock(&mutex);
#endif
	return count;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.read = race_process_process_read,
	.write = race_process_process_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "zoo",
	.fops = &fops,
};

static int __init race_process_process_init(void)
{
	return misc_register(&device);
}

static void __exit race_process_process_exit(void)
{
	misc_deregister(&device);
	race_use(position);
}

module_init(race_process_process_init);
module_exit(race_process_process_exit);
MODULE_DESCRIPTION("zoo: two user processes share a position");
