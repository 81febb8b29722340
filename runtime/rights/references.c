// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reference counts of tasks; rights/references.h describes them. Drivers get tasks in many ways, so
 * no action grants the count (kthread_create() is one way, and has no fixed number of arguments).
 * Instead a denied store is examined: if it changes the count of an existing task, the domain may
 * write the count from then on. It may drop the reference when the task cannot be found any more.
 */
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>

#include "base/limits.h"
#include "rights/fields.h"
#include "rights/references.h"

#define TASKS 256

static const struct guardrail_field usage = { offsetof(struct task_struct, usage), sizeof_field(struct task_struct, usage) };

/* Tasks whose count a domain may write; a domain of 0 marks a free place. A new one replaces the oldest. */
static struct {
	unsigned long task;
	u32 domain;
} tasks[TASKS];
static unsigned int next;
/* Protects tasks and next. Taken in any context but NMI. The locks of templates, conflicts, masks and the table nest inside. */
static DEFINE_SPINLOCK(lock);

static bool is_task(const struct task_struct *wanted)
{
	const struct task_struct *process, *thread;
	bool found = wanted == current;

	rcu_read_lock();
	if (!found)
		for_each_process_thread(process, thread)
			found |= thread == wanted;
	rcu_read_unlock();
	return found;
}

static void take(unsigned int i)
{
	guardrail_fields_change(tasks[i].domain, tasks[i].task, &usage, 1, GUARDRAIL_READ);
	tasks[i].domain = 0;
}

bool guardrail_is_reference(u32 domain, unsigned long addr, unsigned long n)
{
	unsigned long task = addr - usage.offset, flags;
	bool full;

	if (n != usage.size || task < KERNEL_HALF || !is_task((struct task_struct *)task))
		return false;
	spin_lock_irqsave(&lock, flags);
	full = tasks[next].domain;
	if (full)
		take(next);
	if (!guardrail_grant_fields(domain, task, &usage, 1)) {
		tasks[next].task = task;
		tasks[next].domain = domain;
		next = (next + 1) % TASKS;
	}
	spin_unlock_irqrestore(&lock, flags);
	if (full)
		guardrail_limit_reached(GUARDRAIL_LIMIT_TASKS);
	return true;
}

void guardrail_tasks_forget(u32 domain)
{
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < TASKS; i++)
		if (tasks[i].domain == domain)
			take(i);
	spin_unlock_irqrestore(&lock, flags);
}
