// SPDX-License-Identifier: GPL-2.0-or-later
/* What inlined code writes of its own task; domain/thread.h describes it. */
#include <linux/sched.h>

#include "domain/ops.h"
#include "domain/thread.h"

/* What the kernel itself sets while a task runs, and does not clear again. */
#define SET_BY_KERNEL (PF_SUPERPRIV | PF_SIGNALED | PF_DUMPCORE | PF_NPROC_EXCEEDED | PF_FORKNOEXEC)

bool guardrail_is_thread_state(unsigned long addr, unsigned long n)
{
	struct guardrail_thread *old;
	unsigned long flags;

	if (addr == (unsigned long)&current->__state)
		return n == sizeof(current->__state);
	if ((addr != (unsigned long)&current->flags || n != sizeof(current->flags)) &&
	    (addr != (unsigned long)&current->journal_info || n != sizeof(current->journal_info)))
		return false;
	/* These are the task's, and not of what interrupts it. */
	if (!in_task())
		return false;
	local_irq_save(flags);
	old = guardrail_thread();
	if (old && !old->noted)
		*old = (struct guardrail_thread){ .flags = current->flags, .journal = current->journal_info, .noted = true };
	local_irq_restore(flags);
	return old;
}

void guardrail_thread_left(const struct guardrail_thread *old, const struct guardrail_record *record)
{
	unsigned int wrong = (current->flags ^ old->flags) & ~SET_BY_KERNEL;
	bool ended = record->saved.unwound;

	if (wrong && (ended || guardrail_domain_ops->thread_kept((unsigned long)&current->flags, record->entry, record->saved.ip)))
		current->flags ^= wrong;
	if (current->journal_info != old->journal &&
	    (ended || guardrail_domain_ops->thread_kept((unsigned long)&current->journal_info, record->entry, record->saved.ip)))
		current->journal_info = old->journal;
}
