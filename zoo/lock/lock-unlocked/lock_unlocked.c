// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The helper gives the mutex back where it fails, and its caller does so again.
 *
 * Twin: the helper leaves the mutex to its caller where it fails.
 */
#include "zoo.h"

static DEFINE_MUTEX(lock);

static noinline int lock_unlocked_apply(unsigned int rate)
{
	if (rate > 100) {
#ifndef TWIN
		mutex_unlock(&lock);
#endif
		return -EINVAL;
	}
	return 0;
}

static noinline int lock_unlocked_configure(unsigned int rate)
{
	int err;

	mutex_lock(&lock);
	err = lock_unlocked_apply(rate);
	mutex_unlock(&lock); /* BUG: unlock-unlocked */
	return err;
}

static int __init lock_unlocked_init(void)
{
	lock_unlocked_configure(zoo_hide(10));
	lock_unlocked_configure(zoo_hide(1000));
	return 0;
}

static void __exit lock_unlocked_exit(void)
{
}

module_init(lock_unlocked_init);
module_exit(lock_unlocked_exit);
MODULE_DESCRIPTION("zoo: gives a mutex back twice on an error path");
