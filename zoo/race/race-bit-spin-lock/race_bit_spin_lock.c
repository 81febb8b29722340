// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two threads count, each under another bit of the same word.
 *
 * Twin: two threads count under one bit of a word.
 */
#include "race.h"
#include <linux/bit_spinlock.h>

static unsigned long bits;
static unsigned long count;
static struct zoo_thread threads[2];

static noinline void race_bit_spin_lock_first(void)
{
	bit_spin_lock(0, &bits);
	count++; /* OTHER: */
	bit_spin_unlock(0, &bits);
}

static noinline void race_bit_spin_lock_second(void)
{
#ifdef TWIN
	bit_spin_lock(0, &bits);
#else
	bit_spin_lock(1, &bits);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	bit_spin_unlock(0, &bits);
#else
	bit_spin_unlock(1, &bits);
#endif
}

static void race_bit_spin_lock_odd(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_bit_spin_lock_first();
		msleep(10);
	}
}

static void race_bit_spin_lock_even(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_bit_spin_lock_second();
		msleep(10);
	}
}

static int __init race_bit_spin_lock_init(void)
{
	int err = race_thread_start(&threads[0], race_bit_spin_lock_odd, 0);

	if (err)
		return err;
	err = race_thread_start(&threads[1], race_bit_spin_lock_even, 1);
	if (err)
		zoo_thread_stop(&threads[0]);
	return err;
}

static void __exit race_bit_spin_lock_exit(void)
{
	zoo_thread_stop(&threads[0]);
	zoo_thread_stop(&threads[1]);
	race_use(count);
}

module_init(race_bit_spin_lock_init);
module_exit(race_bit_spin_lock_exit);
MODULE_DESCRIPTION("zoo: two threads share a counter under a bit");
