// SPDX-License-Identifier: GPL-2.0-or-later
/* Threads on two CPUs count with preemption off, each in its CPU's counter. */
#include "../race.h"
#include <linux/percpu.h>

static DEFINE_PER_CPU(unsigned long, count);
static struct zoo_thread threads[2];

static noinline void race_cpu_cpu_first(void)
{
	preempt_disable();
	(*this_cpu_ptr(&count))++;
	preempt_enable();
}

static noinline void race_cpu_cpu_second(void)
{
	unsigned long *own = get_cpu_ptr(&count);

	(*own)++;
	put_cpu_ptr(&count);
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
	int cpu;

	zoo_thread_stop(&threads[0]);
	zoo_thread_stop(&threads[1]);
	for_each_possible_cpu(cpu)
		race_use(*per_cpu_ptr(&count, cpu));
}

module_init(race_cpu_cpu_init);
module_exit(race_cpu_cpu_exit);
MODULE_DESCRIPTION("zoo: threads on two CPUs share a counter, correct");
MODULE_LICENSE("GPL");
