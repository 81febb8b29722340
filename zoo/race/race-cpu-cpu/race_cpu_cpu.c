// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Threads on two CPUs count with preemption off.
 *
 * Twin: threads on two CPUs count with preemption off, each in its CPU's counter.
 */
#include "race.h"
#include <linux/percpu.h>

#ifdef TWIN
static DEFINE_PER_CPU(unsigned long, count);
#else
static unsigned long count;
#endif
static struct zoo_thread threads[2];

static noinline void race_cpu_cpu_first(void)
{
	preempt_disable();
#ifdef TWIN
	(*this_cpu_ptr(&count))++;
#else
	count++; /* BUG: data-race */
#endif
	preempt_enable();
}

static noinline void race_cpu_cpu_second(void)
{
#ifdef TWIN
	unsigned long *own = get_cpu_ptr(&count);

	(*own)++;
	put_cpu_ptr(&count);
#else
	preempt_disable();
	count += 2; /* OTHER: */
	preempt_enable();
#endif
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
#ifdef TWIN
	int cpu;

#endif
	zoo_thread_stop(&threads[0]);
	zoo_thread_stop(&threads[1]);
#ifdef TWIN
	for_each_possible_cpu(cpu)
		race_use(*per_cpu_ptr(&count, cpu));
#else
	race_use(count);
#endif
}

module_init(race_cpu_cpu_init);
module_exit(race_cpu_cpu_exit);
MODULE_DESCRIPTION("zoo: threads on two CPUs share a counter");
