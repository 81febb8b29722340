// SPDX-License-Identifier: GPL-2.0-or-later
/* Wakes tasks that sleep in a dead domain; domain/sleepers.h describes it. */
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>

#include "domain/entry.h"
#include "domain/sleepers.h"

static void wake(struct task_struct *task)
{
	unsigned int state = READ_ONCE(task->__state);

	/* As live patching does; the kernel's own function for it is not exported. */
	if (state & TASK_INTERRUPTIBLE)
		set_tsk_thread_flag(task, TIF_NOTIFY_SIGNAL);
	if (state & TASK_NORMAL)
		wake_up_process(task);
}

void guardrail_sleepers_wake(u32 domain)
{
	struct task_struct *process, *task;

	/* Notes of tasks that ended inside a module may stay: only what is still a task is looked for. */
	rcu_read_lock();
	for_each_process_thread(process, task)
		if (guardrail_is_inside(task, domain))
			wake(task);
	rcu_read_unlock();
}
