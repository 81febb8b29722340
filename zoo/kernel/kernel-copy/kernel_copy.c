// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Has the kernel make a copy of a request that was freed.
 *
 * Twin: has the kernel make a copy of a request that is freed afterwards.
 */
#include "zoo.h"

struct request {
	unsigned long words[12];
};

static struct kmem_cache *requests;

/* A cache with a constructor is shared with nobody: what was freed stays as it was. */
static void kernel_copy_construct(void *request)
{
	memset(request, 0, sizeof(struct request));
}

static noinline void *kernel_copy_duplicate(const struct request *request)
{
	void *copy;

	copy = kmemdup(request, zoo_hide(sizeof(*request)), GFP_KERNEL); /* BUG: use-after-free */
	return copy;
}

static int __init kernel_copy_init(void)
{
	struct request *request;

	requests = kmem_cache_create("zoo_requests", sizeof(*request), 0, 0, kernel_copy_construct);
	if (!requests)
		return -ENOMEM;
	request = kmem_cache_alloc(requests, GFP_KERNEL);
	if (!request) {
		kmem_cache_destroy(requests);
		return -ENOMEM;
	}
#ifdef TWIN
	kfree(kernel_copy_duplicate(zoo_hide(request)));
#endif
	kmem_cache_free(requests, request);
#ifndef TWIN
	kfree(kernel_copy_duplicate(zoo_hide(request)));
#endif
	return 0;
}

static void __exit kernel_copy_exit(void)
{
	kmem_cache_destroy(requests);
}

module_init(kernel_copy_init);
module_exit(kernel_copy_exit);
MODULE_DESCRIPTION("zoo: the kernel copies a request that was freed");
