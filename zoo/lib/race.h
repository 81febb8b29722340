/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the modules with data races share. Both sides of a race run, at some time; only time puts them in order, which is no
 * order. Waiting is by msleep, so that only the planted bug or the twin's remedy stands between the two accesses.
 */
#ifndef ZOO_RACE_H
#define ZOO_RACE_H

#include "zoo.h"
#include <linux/cpumask.h>

/* Takes a value to the stack, so that it is used, and no memory is written that the contexts share. */
#define race_use(x)				\
	do {					\
		volatile typeof(x) taken = (x);	\
		(void)taken;			\
	} while (0)

/* Long enough for timers, work and threads that were set off before. */
static inline void race_pause(void)
{
	msleep(20);
}

/* A thread that runs `body` on the nth CPU (counted around), and has begun when this returns. */
static inline int race_thread_start(struct zoo_thread *t, void (*body)(void), unsigned int nth)
{
	init_completion(&t->started);
	t->body = body;
	t->task = kthread_create(zoo_thread_main, t, "zoo/%u", nth);
	if (IS_ERR(t->task))
		return PTR_ERR(t->task);
	get_task_struct(t->task);
	kthread_bind(t->task, nth % num_online_cpus());
	wake_up_process(t->task);
	wait_for_completion(&t->started);
	return 0;
}

#endif
