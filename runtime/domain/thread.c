// SPDX-License-Identifier: GPL-2.0-or-later
/* What inlined code writes of its own task; domain/thread.h describes it. */
#include <linux/kthread.h>
#include <linux/sched.h>

#include "domain/code.h"
#include "domain/ops.h"
#include "domain/thread.h"

/* What the kernel itself sets while a task runs, and does not clear again. */
#define SET_BY_KERNEL (PF_SUPERPRIV | PF_SIGNALED | PF_DUMPCORE | PF_NPROC_EXCEEDED | PF_FORKNOEXEC)

#ifdef TASK_HAS_DEVICE
#define DEVICE(task) ((task)->backing_dev_info)
#else
/* No store goes there. */
static struct backing_dev_info *no_device;
#define DEVICE(task) no_device
#endif

#define IS(field) (addr == (unsigned long)&(field) && n == sizeof(field))

bool guardrail_is_thread_state(unsigned long addr, unsigned long n)
{
	struct guardrail_thread *old;
	unsigned long flags;

	if (IS(current->__state))
		return true;
	/* The others are the task's, and not of what interrupts it. */
	if ((!IS(current->flags) && !IS(current->journal_info) && !IS(current->pagefault_disabled) && !IS(DEVICE(current))) || !in_task())
		return false;
	local_irq_save(flags);
	old = guardrail_thread();
	if (old && !old->noted)
		*old = (struct guardrail_thread){
			.flags = current->flags, .journal = current->journal_info, .device = DEVICE(current),
			.faults_disabled = current->pagefault_disabled, .noted = true,
		};
	local_irq_restore(flags);
	return old;
}

/* True where a field has another value than before and is to be restored. */
static bool is_restored(bool differs, const void *field, const struct guardrail_record *record)
{
	return differs && (record->saved.unwound ||
			   guardrail_domain_ops->thread_kept((unsigned long)field, record->entry, record->saved.ip));
}

void guardrail_thread_left(const struct guardrail_thread *old, const struct guardrail_record *record)
{
	unsigned int wrong = (current->flags ^ old->flags) & ~SET_BY_KERNEL;

	/* A thread whose function this is ends. */
	if (current->flags & PF_KTHREAD && guardrail_is_guarded((unsigned long)kthread_func(current)))
		return;
	if (is_restored(wrong, &current->flags, record))
		current->flags ^= wrong;
	if (is_restored(current->journal_info != old->journal, &current->journal_info, record))
		current->journal_info = old->journal;
	if (is_restored(DEVICE(current) != old->device, &DEVICE(current), record))
		DEVICE(current) = old->device;
	if (is_restored(current->pagefault_disabled != old->faults_disabled, &current->pagefault_disabled, record))
		current->pagefault_disabled = old->faults_disabled;
}
