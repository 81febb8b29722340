// SPDX-License-Identifier: GPL-2.0-or-later
/* The writable part of the current stack; domain/stack.h describes it. */
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>

#include "base/symbols.h"
#include "domain/entry.h"
#include "domain/stack.h"

/*
 * The writable part ends where the domain was entered, if that was on this stack. Code that no thunk entered may write
 * up to the registers that user space left, or up to the stack's end.
 */
static unsigned long stack_limit(unsigned long sp)
{
	unsigned long stack = (unsigned long)task_stack_page(current), end = 0, limit;
	struct stack_info info;

	if (sp - stack < THREAD_SIZE)
		end = (unsigned long)task_pt_regs(current);
	else if (guardrail_stack_of(sp, &info))
		end = (unsigned long)info.end;
	limit = guardrail_stack_limit();
	return limit > sp && limit < end ? limit : end;
}

/*
 * Stack frames of the runtime lie between the stack pointer here and that of the guarded code. A
 * store there does no harm: that part is free for the code that runs next.
 */
bool guardrail_on_stack(unsigned long addr, unsigned long n)
{
	unsigned long sp = current_stack_pointer, limit;

	/* No stack lies near the end of the address space, so the sum does not overflow. */
	if (addr < sp || addr - sp >= THREAD_SIZE * 8 || n > THREAD_SIZE)
		return false;
	limit = stack_limit(sp);
	return addr + n <= limit;
}
