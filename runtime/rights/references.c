// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * References to tasks, which inlined code counts. Drivers hear of tasks in many ways (kthread_create() is one, and has no fixed number of
 * arguments), so a store that is not allowed is looked at: if it changes the count of a task that is there, it is allowed from then on, since the
 * reference may be given back when nobody finds the task any more.
 */
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>

#include "rights/fields.h"
#include "rights/references.h"

#define TASKS 256

static const struct guardrail_field usage = { offsetof(struct task_struct, usage), sizeof_field(struct task_struct, usage) };

/* Whose count a domain may write; the oldest one gives way. */
static struct {
	unsigned long task;
	u32 domain;	/* 0 where the place is free */
} tasks[TASKS];
static unsigned int next;
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

	if (n != usage.size || task < KERNEL_HALF || !is_task((struct task_struct *)task))
		return false;
	spin_lock_irqsave(&lock, flags);
	if (tasks[next].domain)
		take(next);
	if (!guardrail_set_fields(domain, task, &usage, 1)) {
		tasks[next].task = task;
		tasks[next].domain = domain;
		next = (next + 1) % TASKS;
	}
	spin_unlock_irqrestore(&lock, flags);
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
