// SPDX-License-Identifier: GPL-2.0-or-later
/* Work and timers that drivers queue and arm, and threads that they begin and end. */
#include <linux/irq_work.h>
#include <linux/nodemask.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#include "border/check.h"
#include "border/custom.h"
#include "classes/rhash.h"
#include "classes/work.h"
#include "domain/frames.h"
#include "report/report.h"
#include "rights/memory.h"

/* The kernel will call the function of what is queued, so the driver must have the right to call it. */
static void require_function(const struct guardrail_action *action, struct guardrail_call *call, unsigned long function)
{
	if (!function || !guardrail_check_call(action->domain, function))
		guardrail_refuse(action, call, "function at", function, guardrail_held_at(function, action->domain), "icall");
}

/*
 * Work is the driver's memory until it is queued, and again when it runs or was canceled. The value is the type of its
 * objects; their state is 1 while they are queued. Inlined functions queue the work of a hash table, which is the kernel's.
 */
GUARDRAIL_CUSTOM(work_queued)
{
	unsigned long p = object_of(action, call);
	u32 type = size_of(action, call);
	bool noted, known;
	int err;

	if (!p || guardrail_in_hash_table(action->domain, p, sizeof(struct work_struct)))
		return 0;
	noted = guardrail_frame_is_noted(p, ON_WORK);
	known = noted || guardrail_check_object(action->domain, p, type);
	if (!known && !guardrail_require_write(action, call, p, sizeof(struct work_struct)))
		return 0;
	require_function(action, call, (unsigned long)((struct work_struct *)p)->func);
	if (noted)
		return 0;
	if (!known) {
		if (guardrail_frame_note(&(struct guardrail_noted){ .p = p, .ip = call->caller, .domain = action->domain, .kind = ON_WORK }))
			return 0;
		err = guardrail_create_object(action->domain, p, sizeof(struct work_struct), type);
		if (err && err != -EEXIST)
			return err;
	}
	guardrail_move_object(action->domain, p, type, 0, 1);
	return 0;
}

/* Work for an interrupt; that of a hash table is the kernel's. */
GUARDRAIL_CUSTOM(irq_work_queued)
{
	unsigned long p = object_of(action, call);

	if (!p || guardrail_in_hash_table(action->domain, p, sizeof(struct irq_work)) ||
	    !guardrail_require_write(action, call, p, sizeof(struct irq_work)))
		return 0;
	require_function(action, call, (unsigned long)((struct irq_work *)p)->func);
	return 0;
}

GUARDRAIL_CUSTOM(work_done)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_frame_forget(p, ON_WORK);
	return guardrail_object_over(action->domain, p, sizeof(struct work_struct), size_of(action, call));
}

void guardrail_requeue(struct delayed_work *work)
{
	unsigned long p = (unsigned long)&work->work, function = (unsigned long)work->work.func;
	u32 domain = guardrail_innermost_domain();

	/* It is the driver's again since it was canceled. */
	if (!is_domain(domain) || !guardrail_check_write(domain, (unsigned long)work, sizeof(*work)) || !function || !guardrail_check_call(domain, function) || work->timer.function != delayed_work_timer_fn)
		return;
	if (!guardrail_check_object(domain, p, GUARDRAIL_TYPE_WORK) && guardrail_create_object(domain, p, sizeof(work->work), GUARDRAIL_TYPE_WORK))
		return;
	guardrail_move_object(domain, p, GUARDRAIL_TYPE_WORK, 0, 1);
	mod_delayed_work(system_wq, work, 1);
}

void guardrail_rearm(struct timer_list *timer, unsigned long expires)
{
	u32 domain = guardrail_innermost_domain();
	unsigned long p = (unsigned long)timer;

	/* Its memory may have been freed meanwhile, and used for something else. */
	if (!is_domain(domain) || (!guardrail_check_object(domain, p, GUARDRAIL_TYPE_TIMER) && !guardrail_check_write(domain, p, sizeof(*timer))) ||
	    !guardrail_check_call(domain, (unsigned long)timer->function))
		return;
	mod_timer(timer, expires);
}

/* The function of a timer is called: it is not armed any more. */
GUARDRAIL_CUSTOM(timer_runs)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_move_object(action->domain, p, size_of(action, call), 1, 0);
	return 0;
}

/* A timer is initialized. If it is one already and idle, its memory is the driver's again before. */
GUARDRAIL_CUSTOM(timer_again)
{
	unsigned long p = object_of(action, call);
	u32 type = size_of(action, call);

	if (!p || guardrail_object_state(action->domain, p, type) != 0)
		return 0;
	return guardrail_object_over(action->domain, p, sizeof(struct timer_list), type);
}

/* A thread is created by another one, which fails where the node does not exist. */
GUARDRAIL_CUSTOM(node)
{
	unsigned long value;
	int node;

	if (!applies(action, call) || !value_of(&action->pointer, call, &value))
		return 0;
	node = (int)value;
	if (node != NUMA_NO_NODE && (node < 0 || node >= MAX_NUMNODES || !node_online(node)))
		guardrail_refuse(action, call, "use of the node", value, "no such node", "one that is online");
	return 0;
}

/* A thread of the kernel ends. In a thread of a program, or of an interrupt, this would not end what runs. */
GUARDRAIL_CUSTOM(kthread)
{
	if (!in_task() || !(current->flags & PF_KTHREAD))
		guardrail_refuse(action, call, "end of the thread", (unsigned long)current, "a program's thread", "a kernel thread");
	return 0;
}
