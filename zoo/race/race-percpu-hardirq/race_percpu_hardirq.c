// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A thread and an hrtimer's interrupt count for their CPU; the thread only keeps preemption off.
 *
 * Twin: a thread and an hrtimer's interrupt count for their CPU; the thread keeps interrupts off.
 */
#include "race.h"
#include <linux/hrtimer.h>
#include <linux/percpu.h>

static DEFINE_PER_CPU(unsigned long, count);
static struct hrtimer timer;
static struct zoo_thread thread;

static noinline enum hrtimer_restart race_percpu_hardirq_expire(struct hrtimer *t)
{
	(*this_cpu_ptr(&count))++; /* OTHER: */
	return HRTIMER_NORESTART;
}

static noinline void race_percpu_hardirq_add(void)
{
#ifdef TWIN
	unsigned long flags;

	local_irq_save(flags);
#else
	preempt_disable();
#endif
	(*this_cpu_ptr(&count))++; /* BUG: data-race */
#ifdef TWIN
	local_irq_restore(flags);
#else
	preempt_enable();
#endif
}

static void race_percpu_hardirq_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		/* Expires on the CPU that started it: the thread is bound to one. */
		hrtimer_start(&timer, ms_to_ktime(2), HRTIMER_MODE_REL_PINNED_HARD);
		race_percpu_hardirq_add();
		msleep(10);
	}
}

static int __init race_percpu_hardirq_init(void)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(&timer, race_percpu_hardirq_expire, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer.function = race_percpu_hardirq_expire;
#endif
	return race_thread_start(&thread, race_percpu_hardirq_body, 0);
}

static void __exit race_percpu_hardirq_exit(void)
{
	int cpu;

	zoo_thread_stop(&thread);
	hrtimer_cancel(&timer);
	for_each_possible_cpu(cpu)
		race_use(*per_cpu_ptr(&count, cpu));
}

module_init(race_percpu_hardirq_init);
module_exit(race_percpu_hardirq_exit);
MODULE_DESCRIPTION("zoo: thread and interrupt share a CPU's counter");
