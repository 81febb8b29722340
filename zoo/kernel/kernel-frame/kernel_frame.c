// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A kernel thread has a table on its stack, as large as the user says: as large as the stack
 * itself is too large.
 *
 * Twin: a kernel thread has a table on its stack, as large as the user says, and no larger than
 * half of the stack.
 */
#include <linux/moduleparam.h>
#include "zoo.h"

static unsigned int bytes;
static struct zoo_thread filler;
static DECLARE_COMPLETION(filled);

static noinline unsigned int kernel_frame_fill(unsigned int size)
{
	volatile u8 table[size];

	table[0] = size; /* BUG: stack-overflow */
	table[size - 1] = 1;
	return table[0];
}

static void kernel_frame_run(void)
{
	zoo_sink = kernel_frame_fill(bytes);
	complete(&filled);
}

/* The writer does not hang if the thread dies. No more than the stack: the guard page is below, and further down others. */
static int kernel_frame_set(const char *value, const struct kernel_param *parameter)
{
	int err = kstrtouint(value, 10, &bytes);

	if (err)
		return err;
#ifdef TWIN
	bytes = clamp(bytes, 1U, (unsigned int)THREAD_SIZE / 2);
#else
	bytes = clamp(bytes, 1U, (unsigned int)THREAD_SIZE);
#endif
	reinit_completion(&filled);
	err = zoo_thread_start(&filler, kernel_frame_run);
	if (err)
		return err;
	wait_for_completion_timeout(&filled, 5 * HZ);
	zoo_thread_stop(&filler);
	return 0;
}

static const struct kernel_param_ops kernel_frame_bytes = {
	.set = kernel_frame_set,
	.get = param_get_uint,
};
module_param_cb(bytes, &kernel_frame_bytes, &bytes, 0644);
MODULE_PARM_DESC(bytes, "size of the table");

static int __init kernel_frame_init(void)
{
	return 0;
}

static void __exit kernel_frame_exit(void)
{
}

module_init(kernel_frame_init);
module_exit(kernel_frame_exit);
MODULE_DESCRIPTION("zoo: a frame larger than the stack");
