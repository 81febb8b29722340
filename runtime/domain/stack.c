// SPDX-License-Identifier: GPL-2.0-or-later
/* The writable part of the current stack; domain/stack.h describes it. */
#include <linux/hash.h>
#include <linux/percpu.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/stacktrace.h>
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

/* Frames of a walk that can be remembered. */
#define STEPS 8
/* Walks that a CPU remembers, in sets: a loop that fills variables of its callers makes some tens. */
#define SET_BITS 6
#define WAYS 4
#define WALKS (WAYS << SET_BITS)

/**
 * struct walk - A walk from one place of the stack to another, which found no word of interest.
 * @to: What it looked for, as all places here by the distance from where the walk began.
 * @n: Bytes there.
 * @loads: How many modules had entered.
 * @steps: Number of frames.
 * @slot: Where these return.
 * @ip: To which addresses.
 *
 * Where each frame lies relative to the one before it, the addresses say all: the same walk would go the same way, on
 * any stack. The kernel begins each system call at a random place of its stack.
 */
struct walk {
	unsigned int to, n, loads, steps;
	unsigned int slot[STEPS];
	unsigned long ip[STEPS];
};

/* More than static variables of modules have room for. */
static struct walk __percpu *walks;
static DEFINE_PER_CPU(unsigned int, turn);
static DEFINE_PER_CPU(unsigned long, made);

unsigned long guardrail_walks(void)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(made, cpu);
	return sum;
}

/* Another module may have other code at the same addresses. */
static unsigned int loads;

void guardrail_stack_forget(void)
{
	WRITE_ONCE(loads, loads + 1);
}

static struct walk *set_of(unsigned int to)
{
	return this_cpu_ptr(walks) + WAYS * hash_32(to, SET_BITS);
}

/* True where each frame returns to where it did then. The slots are above the begin, and below what was looked for. */
static __always_inline bool is_same(const struct walk *walk, unsigned long begin)
{
	unsigned int i;

	for (i = 0; i < walk->steps; i++)
		if (READ_ONCE_NOCHECK(*(unsigned long *)(begin + walk->slot[i])) != walk->ip[i])
			return false;
	return walk->steps;
}

/* True where the same walk was made before. */
static __always_inline bool is_known(unsigned long begin, unsigned long addr, unsigned long n)
{
	const struct walk *walk, *end;
	unsigned long flags;
	bool same = false;

	if (addr - begin >= THREAD_SIZE)
		return false;
	local_irq_save(flags);
	walk = set_of(addr - begin);
	for (end = walk + WAYS; !same && walk < end; walk++)
		same = walk->to == addr - begin && walk->n == n && walk->loads == READ_ONCE(loads) && is_same(walk, begin);
	local_irq_restore(flags);
	return same;
}

bool guardrail_stored_before(unsigned long addr, unsigned long n, unsigned long store_sp)
{
	return is_known(store_sp, addr, n);
}

static void remember(const struct walk *walk)
{
	unsigned long flags;

	if (!walk->steps || walk->steps > STEPS)
		return;
	local_irq_save(flags);
	set_of(walk->to)[this_cpu_inc_return(turn) % WAYS] = *walk;
	local_irq_restore(flags);
}

static bool is_on(const struct stack_info *info, unsigned long addr)
{
	return addr >= (unsigned long)info->begin && addr < (unsigned long)info->end;
}

/* Adds the frame that a walk is at. Of one that lies where a register says, the addresses do not say all. */
static void note_step(struct walk *walk, unsigned long begin, const struct unwind_state *state)
{
	struct unwind_state other = *state, same = *state;
	unsigned long slot = state->sp - sizeof(long);

	/* The frames of the walk itself are gone when the next one begins. */
	if (slot < begin)
		return;
	/* Another stack may lie elsewhere the next time. A tracer may have its own address in the slot. */
	if (walk->steps >= STEPS || state->regs || state->signal || !is_on(&state->stack_info, begin) ||
	    READ_ONCE_NOCHECK(*(unsigned long *)slot) != state->ip) {
		walk->steps = STEPS + 1;
		return;
	}
	other.bp += THREAD_SIZE;
	unwind_next_frame(&other);
	unwind_next_frame(&same);
	if (other.sp != same.sp || other.ip != same.ip) {
		walk->steps = STEPS + 1;
		return;
	}
	walk->slot[walk->steps] = slot - begin;
	walk->ip[walk->steps++] = state->ip;
}

/* The kernel's unwinder begins on no stack that it does not know. */
static noinline bool begin_on_own(struct unwind_state *state, unsigned long sp, unsigned long bp, unsigned long ip)
{
	struct stack_info info;

	if (!guardrail_own_stack_of(sp, sp, &info))
		return false;
	*state = (struct unwind_state){ .stack_info = info, .task = current, .sp = sp, .bp = bp, .ip = ip };
	return true;
}

/* Begins where it is called, if that is on an own stack. */
static __always_inline bool begin_here_on_own(struct unwind_state *state)
{
	unsigned long sp, bp, ip;

	asm volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2" : "=r"(ip), "=r"(sp), "=r"(bp));
	return begin_on_own(state, sp, bp, ip);
}

unsigned int guardrail_trace(unsigned long *entries, unsigned int most)
{
	struct unwind_state state;
	unsigned int n;

	if (!begin_here_on_own(&state))
		return stack_trace_save(entries, most, 0);
	for (n = 0; n < most && !unwind_done(&state) && !unwind_error(&state); n++) {
		entries[n] = unwind_get_return_address(&state);
		unwind_next_frame(&state);
	}
	return n;
}

void guardrail_walk_begins(struct unwind_state *state, struct pt_regs *regs)
{
	if (!begin_on_own(state, regs->sp, regs->bp, regs->ip)) {
		unwind_start(state, current, regs, NULL);
		return;
	}
	state->regs = regs;
	state->signal = state->full_regs = true;
	unwind_next_frame(state);
}

/*
 * Walks the stack as the kernel's own traces do, up to the frame that holds the range. Most stores go to the innermost
 * frames, so that a few steps suffice. A walk that ends before, or that had to guess, decides nothing.
 */
static noinline bool walk_to(unsigned long addr, unsigned long n, unsigned long from, struct walk *walk)
{
	struct unwind_state state;

	if (!begin_here_on_own(&state))
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
		note_step(walk, from, &state);
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

static noinline bool look(unsigned long begin, unsigned long addr, unsigned long n)
{
	struct walk walk = { .to = addr - begin, .n = n, .loads = READ_ONCE(loads) };

	this_cpu_inc(made);
	if (walk_to(addr, n, begin, &walk))
		return true;
	remember(&walk);
	return false;
}

bool guardrail_returns_by(unsigned long addr, unsigned long n, unsigned long store_sp)
{
	unsigned long sp = current_stack_pointer;

	if (store_sp)
		return look(store_sp, addr, n);
	return !is_known(sp, addr, n) && look(sp, addr, n);
}

/* Where the room on this CPU's stack of interrupts begins, and its size. */
static DEFINE_PER_CPU(unsigned long, roomy);
#define ROOMY (IRQ_STACK_SIZE - LEAST)

/* The same for a stack that is not the task's. */
static noinline bool ends(unsigned long sp)
{
	struct stack_info info;

	if (!guardrail_stack_of(sp, &info))
		return false;
	if (info.type == STACK_TYPE_IRQ)
		this_cpu_write(roomy, (unsigned long)info.begin + LEAST);
	return sp - (unsigned long)info.begin < LEAST;
}

bool guardrail_stack_ends(void)
{
	unsigned long sp = current_stack_pointer, stack = (unsigned long)task_stack_page(current);

	if (sp - stack < THREAD_SIZE)
		return sp - stack < LEAST;
	/* Stacks of interrupts stay where they are. */
	if (likely(sp - this_cpu_read(roomy) < ROOMY))
		return false;
	return ends(sp);
}

int __init guardrail_stack_init(void)
{
	walks = __alloc_percpu(WALKS * sizeof(*walks), __alignof__(*walks));
	return walks ? 0 : -ENOMEM;
}

void guardrail_stack_exit(void)
{
	free_percpu(walks);
}
