// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread and a tasklet count for their CPU; the thread only keeps preemption off.
 *
 * Twin: a thread and a tasklet count for their CPU; the thread keeps softirqs off.
 */
#include "race.h"
#include <linux/percpu.h>

static DEFINE_PER_CPU(unsigned long, count);
static struct zoo_thread thread;

static noinline void race_percpu_softirq_run(struct tasklet_struct *t)
{
	(*this_cpu_ptr(&count))++; /* OTHER: */
}

static DECLARE_TASKLET(tasklet, race_percpu_softirq_run);

static noinline void race_percpu_softirq_add(void)
{
#ifdef TWIN
	local_bh_disable();
	(*this_cpu_ptr(&count))++;
	local_bh_enable();
#else
	get_cpu_var(count)++; /* BUG: data-race */
	put_cpu_var(count);
#endif
}

static void race_percpu_softirq_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		/* Runs on the CPU that scheduled it: the thread is bound to one. */
		tasklet_schedule(&tasklet);
		race_percpu_softirq_add();
		msleep(10);
	}
}

static int __init race_percpu_softirq_init(void)
{
	return race_thread_start(&thread, race_percpu_softirq_body, 0);
}

static void __exit race_percpu_softirq_exit(void)
{
	int cpu;

	zoo_thread_stop(&thread);
	tasklet_kill(&tasklet);
	for_each_possible_cpu(cpu)
		race_use(*per_cpu_ptr(&count, cpu));
}

module_init(race_percpu_softirq_init);
module_exit(race_percpu_softirq_exit);
MODULE_DESCRIPTION("zoo: thread and tasklet share a CPU's counter");
