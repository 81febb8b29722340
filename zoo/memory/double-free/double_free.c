// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An error path frees the buffer and forgets to say so; unload frees it again.
 *
 * Twin: an error path frees the buffer and clears the pointer; unload frees NULL, which is
 * allowed.
 */
#include "zoo.h"

/* Beyond the slab caches: the second free of whole pages leaves a page that the kernel may find bad later. */
#define SIZE 20000

static u8 *buffer;

static noinline int double_free_start(int status)
{
	buffer = kmalloc(SIZE, GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	buffer[0] = 1;
	if (!status)
		return 0;
	kfree(buffer);
#ifdef TWIN
	buffer = NULL;
#endif
	return status;
}

static noinline void double_free_stop(void)
{
	kfree(buffer); /* BUG: double-free */
	buffer = NULL;
}

static int __init double_free_init(void)
{
	/* A device that is not there is no reason to refuse to load. */
	zoo_sink = double_free_start(zoo_hide(-ENODEV));
	return 0;
}

static void __exit double_free_exit(void)
{
	double_free_stop();
}

module_init(double_free_init);
module_exit(double_free_exit);
MODULE_DESCRIPTION("zoo: frees a buffer twice");
