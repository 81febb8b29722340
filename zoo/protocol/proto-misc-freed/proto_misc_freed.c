// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees what holds a device node, and then takes the node away.
 *
 * Twin: takes a device node away, and then frees what holds it.
 */
#include "zoo.h"

struct gadget {
	struct miscdevice misc;
	unsigned int id;
};

static struct kmem_cache *cache;
static struct gadget *gadget;

static const struct file_operations gadget_fops = {
	.owner = THIS_MODULE,
};

/* With a constructor, the cache is nobody else's, and freed objects keep their contents. */
static void proto_misc_freed_construct(void *object)
{
	memset(object, 0, sizeof(struct gadget));
}

static noinline void proto_misc_freed_remove(struct gadget *g)
{
#ifdef TWIN
	misc_deregister(&g->misc);
#endif
	kmem_cache_free(cache, g); /* BUG: protocol-order */
#ifndef TWIN
	misc_deregister(&g->misc);
#endif
}

static int __init proto_misc_freed_init(void)
{
	int err = -ENOMEM;

	cache = kmem_cache_create("proto_misc_freed", sizeof(struct gadget), 0, 0, proto_misc_freed_construct);
	if (!cache)
		return -ENOMEM;
	gadget = kmem_cache_alloc(cache, GFP_KERNEL);
	if (!gadget)
		goto destroy;
	gadget->misc.minor = MISC_DYNAMIC_MINOR;
	gadget->misc.name = KBUILD_MODNAME;
	gadget->misc.fops = &gadget_fops;
	err = misc_register(&gadget->misc);
	if (!err)
		return 0;
	kmem_cache_free(cache, gadget);
destroy:
	kmem_cache_destroy(cache);
	return err;
}

static void __exit proto_misc_freed_exit(void)
{
	proto_misc_freed_remove(gadget);
	kmem_cache_destroy(cache);
}

module_init(proto_misc_freed_init);
module_exit(proto_misc_freed_exit);
MODULE_DESCRIPTION("zoo: frees what holds a registered device");
