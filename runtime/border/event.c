// SPDX-License-Identifier: GPL-2.0-or-later
/* Events of traced modules: counted, and passed to a listener. */
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>

#include "base/kernel.h"
#include "border/event.h"

static DEFINE_PER_CPU(unsigned long [GUARDRAIL_EVENTS], counts);
static guardrail_listener listening;

void guardrail_event(unsigned long addr, unsigned long size, unsigned long event, unsigned long ip)
{
	unsigned int number = event & ~GUARDRAIL_EVENT_PERCPU;
	guardrail_listener listener;

	if (number < GUARDRAIL_EVENTS)
		this_cpu_inc(counts[number]);
	preempt_disable_notrace();
	listener = READ_ONCE(listening);
	if (listener)
		listener(addr, size, event, ip);
	preempt_enable_notrace();
}
EXPORT_SYMBOL_GPL(guardrail_event);

int guardrail_listen(guardrail_listener listener)
{
	return cmpxchg(&listening, NULL, listener) ? -EBUSY : 0;
}
EXPORT_SYMBOL_GPL(guardrail_listen);

void guardrail_unlisten(guardrail_listener listener)
{
	if (cmpxchg(&listening, listener, NULL) == listener)
		synchronize_rcu();
}
EXPORT_SYMBOL_GPL(guardrail_unlisten);

unsigned long guardrail_event_count(unsigned int event)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(counts, cpu)[event];
	return sum;
}
