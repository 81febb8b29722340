// SPDX-License-Identifier: GPL-2.0-or-later
/* What a check that failed asks: here it is decided exactly, and told if it is a violation. */
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>

#include "domain/frames.h"

DEFINE_PER_CPU(struct slow_counts, guardrail_slow_counts);

/*
 * Where the part of the current stack ends that guarded code may use: where it was entered, if that was on this stack. Else, as for code
 * that was not entered by a thunk, at the registers that user space left, or at the stack's end.
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

/* What the kernel has of the stack is not to be written; nearly always that is nothing. */
static __always_inline bool is_in_use(unsigned long addr, unsigned long n)
{
	return unlikely(guardrail_any_frames()) && guardrail_frame_use(addr, n);
}

bool guardrail_may_write_stack(unsigned long addr, unsigned long n)
{
	return guardrail_on_stack(addr, n) && !is_in_use(addr, n);
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

/* A thread that is about to wait says so in its own state, by inlined code. */
static bool is_own_state(unsigned long addr, unsigned long n)
{
	return addr == (unsigned long)&current->__state && n == sizeof(current->__state);
}

static void check(unsigned long addr, unsigned long n, unsigned long domain, unsigned long ip)
{
	unsigned long first;

	if (!n)
		return;
	if (guardrail_may_write_stack(addr, n)) {
		this_cpu_inc(guardrail_slow_counts.stack);
		/* Checks of stores there fault no more, which costs far more than what is done here. */
		populate(entry_of(addr), entry_of(addr));
		return;
	}
	first = guardrail_first_denied(domain, addr, n);
	if (first == addr + n || is_own_state(addr, n) || guardrail_is_reference(domain, addr, n))
		return;
	this_cpu_inc(guardrail_slow_counts.denied);
	guardrail_report_write(addr, n, first, domain, ip);
}

/* The same for what lies between here and where the module was entered not far above, as variables do that are written by pointer. */
static __always_inline bool is_between(unsigned long addr, unsigned long n)
{
	unsigned long sp = current_stack_pointer, limit;

	if (addr - sp >= THREAD_SIZE)
		return false;
	limit = guardrail_stack_limit();
	return addr + n <= limit && limit - sp < THREAD_SIZE;
}

void guardrail_write_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip)
{
	unsigned long at = addr % GUARDRAIL_SLOT;

	this_cpu_inc(guardrail_slow_counts.write);
	if (is_between(addr, size) && !is_in_use(addr, size)) {
		this_cpu_inc(guardrail_slow_counts.stack);
		populate(entry_of(addr), entry_of(addr));
		return;
	}
	/* Most are to a part of a slot that is the domain's to write. */
	if (likely(addr >= KERNEL_HALF && at + size <= GUARDRAIL_SLOT)) {
		int entry = entry_peek(entry_of(addr));

		if (entry >= 0 && (u32)entry >> 4 == domain && !(slot_mask(addr, addr + size) & ~guardrail_writes[entry])) {
			this_cpu_inc(guardrail_slow_counts.part);
			return;
		}
	}
	check(addr, size, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_write_slow);

void guardrail_range_slow(unsigned long addr, unsigned long len, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.range);
	check(addr, len, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_range_slow);

void guardrail_percpu_slow(unsigned long offset, unsigned long size, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.percpu);
	/* The store may come on another CPU, but who may write the variable of one may write that of each. */
	check((unsigned long)raw_cpu_ptr((void __percpu *)offset), size, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_percpu_slow);

void guardrail_icall_slow(unsigned long target, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.icall);
	if (guardrail_check_icall(domain, target))
		return;
	this_cpu_inc(guardrail_slow_counts.denied);
	guardrail_report_icall(target, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_icall_slow);
