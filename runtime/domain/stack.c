// SPDX-License-Identifier: GPL-2.0-or-later
/* The writable part of the current stack; domain/stack.h describes it. */
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <asm/unwind.h>

#include "base/symbols.h"
#include "domain/code.h"
#include "domain/entry.h"
#include "domain/stack.h"

/* Bytes of a stack that calls of the kernel want. */
#define LEAST 4096

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

static bool overlaps(unsigned long addr, unsigned long n, unsigned long begin, unsigned long size)
{
	return addr < begin + size && begin < addr + n;
}

/* True where the range has a word of a frame that holds what its caller has in registers; @top is below the return address. */
static bool is_spill(u32 words, unsigned long addr, unsigned long n, unsigned long top, unsigned long rbp)
{
	unsigned long first = words & GUARDRAIL_SPILL_BY_RBP ? rbp : top;
	int word;

	if (words == GUARDRAIL_SPILL_ALL || (words & GUARDRAIL_SPILL_TOP && overlaps(addr, n, top, sizeof(long))))
		return true;
	for (word = 0; word < GUARDRAIL_SPILL_WORDS; word++)
		if (words >> word & 1 && overlaps(addr, n, first - word * sizeof(long), sizeof(long)))
			return true;
	return false;
}

/*
 * Walks the stack as the kernel's own traces do, up to the frame that holds the range. Most stores go to the innermost
 * frames, so that a few steps suffice. A walk that ends before, or that had to guess, decides nothing.
 */
bool guardrail_returns_by(unsigned long addr, unsigned long n)
{
	struct unwind_state state;

	unwind_start(&state, current, NULL, NULL);
	while (!unwind_done(&state) && !unwind_error(&state)) {
		unsigned long begin = state.sp, rbp = state.bp, ip;
		u32 words;

		/* A call has left the address that it returns to right below the frame. */
		if (overlaps(addr, n, begin - sizeof(long), sizeof(long)))
			return true;
		if (state.regs && overlaps(addr, n, (unsigned long)state.regs, sizeof(*state.regs)))
			return true;
		if (addr + n <= begin)
			return false;
		/* An address of return may be that of the next function. */
		ip = unwind_get_return_address(&state) - !state.signal;
		unwind_next_frame(&state);
		if (addr >= state.sp || !(words = guardrail_spills_at(ip)))
			continue;
		if (is_spill(words, addr, n, state.sp - 2 * sizeof(long), rbp))
			return true;
	}
	return true;
}

bool guardrail_stack_ends(void)
{
	unsigned long sp = current_stack_pointer, stack = (unsigned long)task_stack_page(current);
	struct stack_info info;

	if (sp - stack < THREAD_SIZE)
		return sp - stack < LEAST;
	return guardrail_stack_of(sp, &info) && sp - (unsigned long)info.begin < LEAST;
}
