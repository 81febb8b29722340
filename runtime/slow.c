// SPDX-License-Identifier: GPL-2.0-or-later
/* What a check that failed asks: here it is decided exactly, and told if it is a violation. */
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>

#include "internal.h"

DEFINE_PER_CPU(struct slow_counts, guardrail_slow_counts);

/* Where the part of the current stack ends that guarded code may use: at the registers that user space left, or at the stack's end. */
static unsigned long stack_limit(unsigned long sp)
{
	unsigned long stack = (unsigned long)task_stack_page(current);
	struct stack_info info;

	/*
	 * Once wrappers note the stack pointer with which they enter a domain, their note for this stack is the limit. Until then it is
	 * the whole stack, its callers' frames too.
	 */
	if (sp - stack < THREAD_SIZE)
		return (unsigned long)task_pt_regs(current);
	return guardrail_stack_of(sp, &info) ? (unsigned long)info.end : 0;
}

/*
 * The stack pointer here is below that of the guarded code by the frames of the slow path: what lies between is free
 * for whoever runs next, so nothing is lost by a store there.
 */
bool guardrail_on_stack(unsigned long addr, unsigned long n)
{
	unsigned long sp = current_stack_pointer, limit;

	/* No stack is near the end of the address space, so the sum is none's. */
	if (addr < sp || addr - sp >= THREAD_SIZE * 8 || n > THREAD_SIZE)
		return false;
	limit = stack_limit(sp);
	return addr + n <= limit;
}

static void check(unsigned long addr, unsigned long n, unsigned long domain, unsigned long ip)
{
	unsigned long first;

	if (!n)
		return;
	if (guardrail_on_stack(addr, n)) {
		this_cpu_inc(guardrail_slow_counts.stack);
		return;
	}
	first = guardrail_first_denied(domain, addr, n);
	if (first == addr + n)
		return;
	this_cpu_inc(guardrail_slow_counts.denied);
	guardrail_report_write(addr, n, first, domain, ip);
}

void guardrail_write_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.write);
	check(addr, size, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_write_slow);

void guardrail_range_slow(unsigned long addr, unsigned long len, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.range);
	check(addr, len, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_range_slow);

void guardrail_icall_slow(unsigned long target, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.icall);
	if (guardrail_check_icall(domain, target))
		return;
	this_cpu_inc(guardrail_slow_counts.denied);
	guardrail_report_icall(target, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_icall_slow);
