// SPDX-License-Identifier: GPL-2.0-or-later
/* Threads on two CPUs count with preemption off. */
#include "../race.h"
#include <linux/percpu.h>

static unsigned long count;
static struct zoo_thread threads[2];

static noinline void race_cpu_cpu_first(void)
{
	preempt_disable();
	count++; /* BUG: data-race */
	preempt_enable();
}

static noinline void race_cpu_cpu_second(void)
{
	preempt_disable();
	count += 2; /* OTHER: */
	preempt_enable();
}

static int __init race_cpu_cpu_init(void)
{
	int err = race_thread_start(&threads[0], race_cpu_cpu_first, 0);

	if (err)
		return err;
	err = race_thread_start(&threads[1], race_cpu_cpu_second, 1);
	if (err)
		zoo_thread_stop(&threads[0]);
	return err;
}

static void __exit race_cpu_cpu_exit(void)
{
	zoo_thread_stop(&threads[0]);
	zoo_thread_stop(&threads[1]);
	race_use(count);
}

module_init(race_cpu_cpu_init);
module_exit(race_cpu_cpu_exit);
MODULE_DESCRIPTION("zoo: threads on two CPUs share a counter");
MODULE_LICENSE("GPL");
