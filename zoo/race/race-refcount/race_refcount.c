// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two threads work on a job; one stores its result after it has given its reference back.
 *
 * Twin: two threads work on a job; each stores its result and gives its reference back.
 */
#include "race.h"
#include <linux/refcount.h>

static struct {
	refcount_t users;
	unsigned long results[2];
} job;
static struct zoo_thread threads[2];

static noinline void race_refcount_finish(void)
{
	race_use(READ_ONCE(job.results[0])); /* OTHER: */
	race_use(READ_ONCE(job.results[1]));
}

static void race_refcount_put(void)
{
	if (refcount_dec_and_test(&job.users))
		race_refcount_finish();
}

static noinline void race_refcount_first(void)
{
#ifdef TWIN
	WRITE_ONCE(job.results[0], 1);
#endif
	race_refcount_put();
#ifndef TWIN
	WRITE_ONCE(job.results[0], 1); /* BUG: data-race */
#endif
}

static void race_refcount_second(void)
{
	WRITE_ONCE(job.results[1], 2);
	/* The last one. */
	msleep(50);
	race_refcount_put();
}

static int __init race_refcount_init(void)
{
	int err;

	refcount_set(&job.users, 2);
	err = race_thread_start(&threads[0], race_refcount_first, 0);
	if (err)
		return err;
	err = race_thread_start(&threads[1], race_refcount_second, 1);
	if (err)
		zoo_thread_stop(&threads[0]);
	return err;
}

static void __exit race_refcount_exit(void)
{
	zoo_thread_stop(&threads[0]);
	zoo_thread_stop(&threads[1]);
}

module_init(race_refcount_init);
module_exit(race_refcount_exit);
MODULE_DESCRIPTION("zoo: hands a job over by its reference count");
