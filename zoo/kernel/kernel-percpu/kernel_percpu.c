// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sums counters of all CPUs after their memory was freed.
 *
 * Twin: sums counters of all CPUs and then frees their memory.
 */
#include <linux/percpu.h>
#include "zoo.h"

struct counters {
	unsigned long packets;
	unsigned long bytes[31];
};

static noinline unsigned long kernel_percpu_packets(const struct counters *c)
{
	return READ_ONCE(c->packets); /* BUG: use-after-free */
}

static int __init kernel_percpu_init(void)
{
	struct counters __percpu *counters = alloc_percpu(struct counters);
	unsigned long sum = 0;
	int cpu;

	if (!counters)
		return -ENOMEM;
#ifndef TWIN
	free_percpu(counters);
#endif
	for_each_online_cpu(cpu)
		sum += kernel_percpu_packets(per_cpu_ptr(zoo_hide(counters), cpu));
#ifdef TWIN
	free_percpu(counters);
#endif
	zoo_sink = sum;
	return 0;
}

static void __exit kernel_percpu_exit(void)
{
}

module_init(kernel_percpu_init);
module_exit(kernel_percpu_exit);
MODULE_DESCRIPTION("zoo: reads memory of each CPU that was freed");
