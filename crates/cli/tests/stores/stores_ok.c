// SPDX-License-Identifier: GPL-2.0-or-later
/* Everything goes where it may. */
#include "stores.h"

static void (*volatile taken)(void) = stores_function;

static int __init stores_init(void)
{
	void *p = own;

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
	do_call(taken);
	do_call(dump_stack);
	return 0;
}

static void __exit stores_exit(void)
{
}

module_init(stores_init);
module_exit(stores_exit);
MODULE_DESCRIPTION("Stores and calls that are allowed");
MODULE_LICENSE("GPL");
