// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A file of /proc gives its state to the reader from an object that was freed; the kernel makes
 * the copy.
 *
 * Twin: a file of /proc gives its state to the reader from an object that lives until unload; the
 * kernel makes the copy.
 */
#include <linux/proc_fs.h>
#include "zoo.h"

#define LENGTH 64

static struct kmem_cache *states;
static char *state;

/* A cache with a constructor is shared with nobody: what was freed stays as it was. */
static void kernel_proc_construct(void *state)
{
	memset(state, '.', LENGTH);
}

static noinline ssize_t kernel_proc_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	ssize_t done;

	done = simple_read_from_buffer(buf, count, pos, state, LENGTH); /* BUG: use-after-free */
	return done;
}

static const struct proc_ops kernel_proc_ops = {
	.proc_read = kernel_proc_read,
};

static int __init kernel_proc_init(void)
{
	/* The kernel lets users have what lies in such a cache. */
	states = kmem_cache_create_usercopy("zoo_states", LENGTH, 0, 0, 0, LENGTH, kernel_proc_construct);
	if (!states)
		return -ENOMEM;
	state = kmem_cache_alloc(states, GFP_KERNEL);
	if (!state)
		goto destroy;
	if (!proc_create("zoo", 0444, NULL, &kernel_proc_ops))
		goto free;
#ifndef TWIN
	kmem_cache_free(states, state);
#endif
	return 0;
free:
	kmem_cache_free(states, state);
destroy:
	kmem_cache_destroy(states);
	return -ENOMEM;
}

static void __exit kernel_proc_exit(void)
{
	remove_proc_entry("zoo", NULL);
#ifdef TWIN
	kmem_cache_free(states, state);
#endif
	kmem_cache_destroy(states);
}

module_init(kernel_proc_init);
module_exit(kernel_proc_exit);
MODULE_DESCRIPTION("zoo: a file of /proc gives freed memory to its reader");
