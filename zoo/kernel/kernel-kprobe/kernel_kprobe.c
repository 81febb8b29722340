// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The handler of a kprobe asks a filter that was freed before the probe is taken away.
 *
 * Twin: the handler of a kprobe asks a filter that is freed after the probe is taken away.
 */
#include <linux/kprobes.h>
#include <linux/sched.h>
#include "zoo.h"

struct filter {
	pid_t pid;
	unsigned long hits;
};

static struct kmem_cache *filters;
static struct filter *filter;
static struct task_struct *loader;

/* A cache with a constructor is shared with nobody: what was freed stays as it was. */
static void kernel_kprobe_construct(void *filter)
{
	memset(filter, 0, sizeof(struct filter));
}

static noinline bool kernel_kprobe_wanted(const struct filter *f)
{
	return READ_ONCE(f->pid) == task_pid_nr(current); /* BUG: use-after-free */
}

static int kernel_kprobe_handler(struct kprobe *probe, struct pt_regs *regs)
{
	/* Others call the function, too. */
	if (current == READ_ONCE(loader))
		zoo_sink = kernel_kprobe_wanted(filter);
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "kstrtoint",
	.pre_handler = kernel_kprobe_handler,
};

static int __init kernel_kprobe_init(void)
{
	int number, err = -ENOMEM;

	filters = kmem_cache_create("zoo_filters", sizeof(struct filter), 0, 0, kernel_kprobe_construct);
	if (!filters)
		return -ENOMEM;
	filter = kmem_cache_alloc(filters, GFP_KERNEL);
	if (!filter)
		goto destroy;
	filter->pid = task_pid_nr(current);
	err = register_kprobe(&probe);
	if (err)
		goto free;
#ifndef TWIN
	kmem_cache_free(filters, filter);
#endif
	WRITE_ONCE(loader, current);
	err = kstrtoint("7", 10, &number);
	WRITE_ONCE(loader, NULL);
	unregister_kprobe(&probe);
#ifdef TWIN
	kmem_cache_free(filters, filter);
#endif
	if (err)
		kmem_cache_destroy(filters);
	return err;
free:
	kmem_cache_free(filters, filter);
destroy:
	kmem_cache_destroy(filters);
	return err;
}

static void __exit kernel_kprobe_exit(void)
{
	kmem_cache_destroy(filters);
}

module_init(kernel_kprobe_init);
module_exit(kernel_kprobe_exit);
MODULE_DESCRIPTION("zoo: the handler of a kprobe reads a filter that was freed");
