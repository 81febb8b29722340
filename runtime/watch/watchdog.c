// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Entries that do not end. On each CPU a timer looks at what runs. An entry loops if it is found
 * running again and again, without having slept, for as long as the parameter says. If the policy
 * ends entries, the entry is ended. That happens at once where the interrupt met code of the
 * module, otherwise when the kernel function that it called has returned, and its thunk has noted
 * what it returned. If it does not return for twice as long again, it is ended there, as at a fault.
 * Loops with interrupts off are found from another CPU (stuck.c). Endless sleeps are not found.
 *
 * Entries that still run in a dead domain are ended in the same way, without delay.
 */
#include <linux/cpuhotplug.h>
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/kallsyms.h>
#include <linux/percpu.h>
#include <linux/string.h>
#include <linux/version.h>
#include <asm/ibt.h>
#include <asm/irq_regs.h>
#include <asm/unwind.h>

#include "domain/code.h"
#include "domain/entry.h"
#include "domain/policy.h"
#include "domain/stack.h"
#include "domain/unwind.h"
#include "report/report.h"
#include "watch/fault.h"
#include "watch/stuck.h"
#include "watch/watchdog.h"

/*
 * How many looks find a loop; the delay in ms while there is something to end; and the delay while
 * nothing is expected.
 */
#define LOOKS 16
/* So many end a loop in the kernel. */
#define MOST_LOOKS (3 * LOOKS)
#define SOON_MS 10
#define IDLE_MS 1000
/* The same for a dead domain. */
#define DEAD_LOOKS 2
#define MAX_FRAMES 48

static unsigned int watchdog = 10;
module_param(watchdog, uint, 0644);
MODULE_PARM_DESC(watchdog, "after how many seconds of running without an end the call of a module is taken for an endless loop (0: never)");

static DEFINE_PER_CPU(struct hrtimer, timers);
static enum cpuhp_state hotplug;

/* A thread whose entry looped returns to this instead of the module. */
static noinline __used void returned(void)
{
	const struct guardrail_record *record = guardrail_innermost();
	unsigned long ip = guardrail_looping();

	if (record && record->entry)
		guardrail_faulted(record->entry->domain, "endless loop", ip);
	/* The entry could be ended when its return was diverted. */
	BUG();
}

void guardrail_returned(void);
asm("	.pushsection .text, \"ax\"\n"
    "	.balign	16\n"
    "	.globl	guardrail_returned\n"
    "	.type	guardrail_returned, @function\n"
    "guardrail_returned:\n"
    ASM_ENDBR
    /* The stack is as after a call that has returned; functions begin 8 bytes deeper. */
    "	pushq	$0\n"
    "	cld\n"
    "	jmp	returned\n"
    "	.size	guardrail_returned, . - guardrail_returned\n"
    "	.popsection\n");
STACK_FRAME_NON_STANDARD(guardrail_returned);

/*
 * True in functions that wait for a lock that spins. An entry that ended there would hold the lock
 * without a record of it, unless it called the function by a thunk.
 */
static bool takes_lock(unsigned long addr)
{
	char name[KSYM_SYMBOL_LEN];

	sprint_symbol_no_offset(name, addr);
	return str_has_prefix(name, "_raw_") && !strstr(name, "unlock");
}

/*
 * Diverts the return of the innermost kernel function that code of the module called. If a thunk has made the call,
 * that is the return of the thunk: it first notes what the function has returned (locks, memory, objects).
 */
static bool divert_return(struct pt_regs *regs, const struct guardrail_record *record, bool by_thunk)
{
	unsigned long called = regs->ip;
	struct unwind_state state;
	int i;

	guardrail_walk_begins(&state, regs);
	for (i = 0; i < MAX_FRAMES && !unwind_done(&state) && !unwind_error(&state); i++, unwind_next_frame(&state)) {
		unsigned long ip = state.ip, *slot = (unsigned long *)state.sp - 1;

		switch (guardrail_code_at(ip)) {
		case GUARDRAIL_CODE_OTHER:
			called = ip;
			continue;
		case GUARDRAIL_CODE_CALL:
			by_thunk = true;
			continue;
		case GUARDRAIL_CODE_ENTRY:
			/* The innermost entry is another one: this one is about to begin, or is over. */
			return false;
		case GUARDRAIL_CODE_OWN:
			break;
		}
		if (!by_thunk && takes_lock(called))
			return false;
		/* Change nothing where code was interrupted, or where a tracer has its own address. */
		if (state.signal || !guardrail_can_end(record, (unsigned long)slot) || READ_ONCE(*slot) != ip)
			return false;
		WRITE_ONCE(*slot, (unsigned long)guardrail_returned);
		return true;
	}
	return false;
}

/* Ends the interrupted entry, if that is possible here. */
static bool end(struct pt_regs *regs, const struct guardrail_record *record, unsigned int looks)
{
	if (looks >= MOST_LOOKS && guardrail_contain(regs, "endless loop"))
		return true;
	switch (guardrail_code_at(regs->ip)) {
	case GUARDRAIL_CODE_OWN:
		return guardrail_divert(regs, record, "endless loop", regs->ip);
	case GUARDRAIL_CODE_CALL:
		return divert_return(regs, record, true);
	case GUARDRAIL_CODE_ENTRY:
		return false;
	default:
		return divert_return(regs, record, false);
	}
}

/* True where a task is in a dead domain, and has to leave. */
static bool someone_is_dead(void)
{
	unsigned long dead = READ_ONCE(guardrail_dead_domains);
	unsigned int domain;

	for_each_set_bit(domain, &dead, GUARDRAIL_DOMAINS)
		if (guardrail_inside_domain(domain))
			return true;
	return false;
}

bool guardrail_end_running(struct pt_regs *regs)
{
	struct guardrail_running running;

	if (!guardrail_running(&running))
		return false;
	guardrail_report_loop(running.record->entry->domain, running.record->entry->function, READ_ONCE(watchdog), regs->ip);
	guardrail_note_loop(regs->ip);
	return end(regs, running.record, running.looks);
}

static enum hrtimer_restart look(struct hrtimer *timer)
{
	unsigned int seconds = READ_ONCE(watchdog);
	u64 again = seconds ? (u64)seconds * MSEC_PER_SEC / LOOKS : IDLE_MS;
	struct pt_regs *regs = get_irq_regs();
	struct guardrail_running running;

	if (regs && !user_mode(regs) && guardrail_running(&running)) {
		u32 domain = running.record->entry->domain;
		bool dead = guardrail_is_dead(domain), loops = seconds && running.looks >= LOOKS;

		if (running.looks == LOOKS && loops)
			guardrail_report_loop(domain, running.record->entry->function, seconds, regs->ip);
		if (guardrail_ends_threads() && (loops || (dead && running.looks >= DEAD_LOOKS))) {
			guardrail_note_loop(regs->ip);
			if (!end(regs, running.record, running.looks))
				again = SOON_MS;
		}
	}
	if (guardrail_stuck_look(seconds) || someone_is_dead())
		again = SOON_MS;
	hrtimer_forward_now(timer, ms_to_ktime(again));
	return HRTIMER_RESTART;
}

static int online(unsigned int cpu)
{
	struct hrtimer *timer = per_cpu_ptr(&timers, cpu);

	guardrail_stuck_online(cpu);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup(timer, look, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = look;
#endif
	hrtimer_start(timer, ms_to_ktime(IDLE_MS), HRTIMER_MODE_REL_PINNED_HARD);
	return 0;
}

static int offline(unsigned int cpu)
{
	hrtimer_cancel(per_cpu_ptr(&timers, cpu));
	return 0;
}

int __init guardrail_watchdog_init(void)
{
	int state = guardrail_stuck_init();

	if (state)
		return state;
	state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "guardrail:watchdog", online, offline);
	if (state < 0) {
		guardrail_stuck_exit();
		return state;
	}
	hotplug = state;
	return 0;
}

void guardrail_watchdog_exit(void)
{
	cpuhp_remove_state(hotplug);
	guardrail_stuck_exit();
}
