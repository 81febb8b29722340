// SPDX-License-Identifier: GPL-2.0-or-later
/* Gives back the spin lock of each queue that it has looked at. */
#include "../zoo.h"

static DEFINE_SPINLOCK(first_lock);
static DEFINE_SPINLOCK(second_lock);

static noinline void lock_unlocked_spin_drain(void)
{
	spin_lock(&first_lock);
	spin_unlock(&first_lock);
	spin_lock(&second_lock);
	spin_unlock(&second_lock);
}

static int __init lock_unlocked_spin_init(void)
{
	lock_unlocked_spin_drain();
	return 0;
}

static void __exit lock_unlocked_spin_exit(void)
{
}

module_init(lock_unlocked_spin_init);
module_exit(lock_unlocked_spin_exit);
MODULE_DESCRIPTION("zoo: gives back the spin locks that it holds, correct");
MODULE_LICENSE("GPL");
