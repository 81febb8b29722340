// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A work item copies a name into an object of a cache, with the zero byte behind the name behind
 * the object.
 *
 * Twin: a work item copies a name into an object of a cache, with the zero byte behind the name in
 * the object's last byte.
 */
#include "zoo.h"

/* No multiple of the cache's alignment: the slot is larger than the object. */
#define LENGTH 44

static struct kmem_cache *names;
static char *name;

/* A cache with a constructor is shared with nobody. */
static void kernel_work_construct(void *name)
{
	memset(name, 'x', LENGTH);
}

static noinline void kernel_work_end(char *text, unsigned int length)
{
	WRITE_ONCE(text[length], 0); /* BUG: out-of-bounds */
}

static void kernel_work_run(struct work_struct *work)
{
#ifdef TWIN
	kernel_work_end(name, zoo_hide(LENGTH) - 1);
#else
	kernel_work_end(name, zoo_hide(LENGTH));
#endif
}

static DECLARE_WORK(work, kernel_work_run);

static int __init kernel_work_init(void)
{
	names = kmem_cache_create("zoo_names", LENGTH, 0, 0, kernel_work_construct);
	if (!names)
		return -ENOMEM;
	name = kmem_cache_alloc(names, GFP_KERNEL);
	if (!name) {
		kmem_cache_destroy(names);
		return -ENOMEM;
	}
	schedule_work(&work);
	flush_work(&work);
	return 0;
}

static void __exit kernel_work_exit(void)
{
	kmem_cache_free(names, name);
	kmem_cache_destroy(names);
}

module_init(kernel_work_init);
module_exit(kernel_work_exit);
MODULE_DESCRIPTION("zoo: a work item writes a byte behind an object of a cache");
