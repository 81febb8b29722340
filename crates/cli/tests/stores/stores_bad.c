// SPDX-License-Identifier: GPL-2.0-or-later
/* Everything goes to memory that nobody gave to the module, which is there all the same. */
#include "stores.h"

static u64 __percpu *counter;

static int __init stores_init(void)
{
	void *p = kzalloc(SIZE, GFP_KERNEL);

	counter = alloc_percpu(u64);
	if (!p || !counter)
		return -ENOMEM;
	OPTIMIZER_HIDE_VAR(p);
	do_byte(p);
	do_word(p);
	do_quad(p);
	do_crossing(p);
	do_group(p);
	do_clear(p);
	do_copy(p);
	do_bit(p);
	do_bit_below(p);
	do_exchange(p);
	do_pair(p);
	do_flags(p);
	do_barrier(p);
	do_percpu((void __force *)counter);
	do_call(stores_inside);
	free_percpu(counter);
	kfree(p);
	return 0;
}

static void __exit stores_exit(void)
{
}

module_init(stores_init);
module_exit(stores_exit);
MODULE_DESCRIPTION("Stores and calls that are not allowed");
MODULE_LICENSE("GPL");
