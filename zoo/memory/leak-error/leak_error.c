// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * When the ring cannot be registered, the error path frees the ring and forgets the buffer.
 *
 * Twin: when the ring cannot be registered, the error path frees the ring and the buffer.
 */
#include "zoo.h"

struct ring {
	void *buffer;
	u32 size;
};

static struct ring *registered;

static noinline int leak_error_register(struct ring *ring)
{
	if (ring->size > zoo_hide(64))
		return -EINVAL;
	registered = ring;
	return 0;
}

static noinline int leak_error_setup(u32 size)
{
	struct ring *ring;
	void *buffer;
	int err;

	buffer = kmalloc(size, GFP_KERNEL); /* BUG: leak */
	if (!buffer)
		return -ENOMEM;
	ring = kmalloc(sizeof(*ring), GFP_KERNEL);
	if (!ring) {
		kfree(buffer);
		return -ENOMEM;
	}
	ring->buffer = buffer;
	ring->size = size;
	err = leak_error_register(ring);
	if (!err)
		return 0;
	kfree(ring);
#ifdef TWIN
	kfree(buffer);
#endif
	return err;
}

static int __init leak_error_init(void)
{
	zoo_sink = leak_error_setup(zoo_hide(100));
	return 0;
}

static void __exit leak_error_exit(void)
{
	if (!registered)
		return;
	kfree(registered->buffer);
	kfree(registered);
}

module_init(leak_error_init);
module_exit(leak_error_exit);
MODULE_DESCRIPTION("zoo: an error path forgets the first of two allocations");
