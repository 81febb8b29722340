// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Gives back the spin lock of the queue that it has looked at before, and not that of the queue
 * that it looks at.
 *
 * Twin: gives back the spin lock of each queue that it has looked at.
 */
#include "zoo.h"

static DEFINE_SPINLOCK(first_lock);
static DEFINE_SPINLOCK(second_lock);

static noinline void lock_unlocked_spin_drain(void)
{
	spin_lock(&first_lock);
	spin_unlock(&first_lock);
	spin_lock(&second_lock);
#ifndef TWIN
	spin_unlock(&first_lock); /* BUG: unlock-unlocked */
#endif
	spin_unlock(&second_lock);
}

static int __init lock_unlocked_spin_init(void)
{
#ifndef TWIN
	/* Makes up for what the unlock of too much takes from the preemption count, so that the machine lives on. */
	preempt_disable();
#endif
	lock_unlocked_spin_drain();
	return 0;
}

static void __exit lock_unlocked_spin_exit(void)
{
}

module_init(lock_unlocked_spin_init);
module_exit(lock_unlocked_spin_exit);
MODULE_DESCRIPTION("zoo: gives back a spin lock that it does not hold");
