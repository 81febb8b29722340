// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Processor faults in guarded modules, and in kernel functions that they called with a bad pointer. The kernel notifies
 * of a fault before it ends the thread, and continues where the registers point: that serves to end the entry. Of bad
 * addresses it notifies only after it has logged an oops, so a probe comes before that.
 *
 * A kernel function that faults may hold locks. Mutexes and semaphores that are variables are released (kept.c). Others
 * stay taken, as all do when the kernel ends the thread instead; in an interrupt it would panic. Those that spin show in
 * the count of preemption, and are reported.
 */
#include <linux/kallsyms.h>
#include <linux/kdebug.h>
#include <linux/kprobes.h>
#include <linux/ptrace.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/ibt.h>
#include <asm/linkage.h>
#include <asm/trapnr.h>
#include <asm/unwind.h>

#include "base/symbols.h"
#include "domain/code.h"
#include "domain/entry.h"
#include "domain/policy.h"
#include "domain/stack.h"
#include "domain/unwind.h"
#include "report/report.h"
#include "watch/fault.h"
#include "watch/kept.h"

/* Bytes below the stack pointer of the module's code that stay untouched. */
#define ROOM 256

static const char bad_address[] = "access to a bad address";
static bool probed;

/* How many calls the kernel may be away from the module. */
#define MAX_DEPTH 64

/* True in functions of this module that do not stand for one of the kernel. */
static bool is_runtime(unsigned long addr)
{
	char name[KSYM_SYMBOL_LEN];

	if (!within_module(addr, THIS_MODULE))
		return false;
	sprint_symbol_no_offset(name, addr);
	return !str_has_prefix(name, "guardrail_custom_");
}

/* What called the entry may have taken the same locks. */
static void keep_for_callers(struct unwind_state *state, struct guardrail_kept *kept)
{
	int i;

	for (i = 0; kept->n && i < MAX_DEPTH && !unwind_done(state) && !unwind_error(state); i++, unwind_next_frame(state)) {
		unsigned long ip = unwind_get_return_address(state);

		if (ip && guardrail_code_at(ip) == GUARDRAIL_CODE_OTHER)
			guardrail_kept_remove(kept, ip - 1);
	}
}

/*
 * Finds where a guarded module called the kernel function that faulted, or the thunk by which it did, and which locks the
 * functions in between keep; 0 where the module did not.
 */
static unsigned long caller_of(struct pt_regs *regs, struct guardrail_kept *kept)
{
	unsigned long called = regs->ip;
	struct unwind_state state;
	int i;

	guardrail_kept_add(kept, called);
	guardrail_walk_begins(&state, regs);
	for (i = 0; i < MAX_DEPTH && !unwind_done(&state) && !unwind_error(&state); i++, unwind_next_frame(&state)) {
		unsigned long ip = unwind_get_return_address(&state);

		/* What is below an interrupt or another fault was not called by the module. */
		if (!ip || unwind_get_entry_regs(&state, NULL))
			return 0;
		switch (guardrail_code_at(ip)) {
		case GUARDRAIL_CODE_OTHER:
			called = ip;
			guardrail_kept_add(kept, ip - 1);
			continue;
		case GUARDRAIL_CODE_ENTRY:
			/* The innermost entry is about to begin, or is over. */
			return 0;
		default:
			if (is_runtime(called))
				return 0;
			keep_for_callers(&state, kept);
			return ip;
		}
	}
	return 0;
}

static bool is_code(unsigned long addr)
{
	unsigned long start, end;

	return guardrail_symbol_range(addr, &start, &end);
}

/* The kernel called an address without code, of which its tables say nothing: the fault is the caller's. */
static void step_back(struct pt_regs *regs)
{
	unsigned long ip;

	if (is_code(regs->ip) || get_kernel_nofault(ip, (unsigned long *)regs->sp) || !is_code(ip))
		return;
	regs->ip = ip;
	regs->sp += sizeof(ip);
}

/* A thread whose entry is to end continues here. */
static noinline void go_on(unsigned long ip, unsigned long domain, const char *what, unsigned long at, const struct guardrail_kept *kept)
{
	if (!guardrail_is_guarded(at))
		pr_err_ratelimited("fault in %pS, which domain %lu called\n", (void *)at, domain);
	if (kept)
		guardrail_kept_release(kept);
	guardrail_faulted(domain, what, ip);
	/* The entry could be ended when the fault was found, and only the policy may have changed since. */
	BUG();
}

bool guardrail_divert(struct pt_regs *regs, const struct guardrail_record *record, const char *what, unsigned long ip)
{
	if (!guardrail_can_end(record, regs->sp))
		return false;
	regs->di = ip;
	regs->si = record->entry->domain;
	regs->dx = (unsigned long)what;
	regs->cx = regs->ip;
	regs->r8 = 0;
	regs->sp = ((regs->sp - ROOM) & ~15UL) - 8;
	regs->ip = (unsigned long)go_on;
	regs->flags &= ~(X86_EFLAGS_DF | X86_EFLAGS_AC);
	return true;
}

/* Leaves the locks for go_on() in the frames that end. */
static void hand_on(struct pt_regs *regs, unsigned long sp, const struct guardrail_record *record, const struct guardrail_kept *kept)
{
	unsigned long place = ALIGN(sp, sizeof(long));

	if (!kept->n || record->saved.sp - sp < sizeof(*kept) + sizeof(long))
		return;
	memcpy((void *)place, kept, sizeof(*kept));
	regs->r8 = place;
}

bool guardrail_contain(struct pt_regs *regs, const char *what)
{
	const struct guardrail_record *record;
	struct guardrail_kept kept = { 0 };
	unsigned long ip, sp;

	if (!regs || user_mode(regs) || !guardrail_ends_entries())
		return false;
	record = guardrail_innermost();
	ip = guardrail_is_guarded(regs->ip) ? regs->ip : 0;
	if (!ip && record) {
		struct pt_regs from = *regs;

		step_back(&from);
		ip = caller_of(&from, &kept);
	}
	sp = regs->sp;
	if (!ip || !record || !guardrail_divert(regs, record, what, ip))
		return false;
	hand_on(regs, sp, record, &kept);
	return true;
}

static int on_fault(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *args = data;
	const char *what;

	if (event != DIE_TRAP && event != DIE_GPF && event != DIE_OOPS)
		return NOTIFY_DONE;
	what = event == DIE_OOPS ? bad_address :
	       event == DIE_GPF ? "access to an address that is not canonical" :
	       args->trapnr == X86_TRAP_DE ? "division by zero" : "instruction that traps";
	return guardrail_contain(args->regs, what) ? NOTIFY_STOP : NOTIFY_DONE;
}

void guardrail_fault_return(void);
asm("	.pushsection .text, \"ax\"\n"
    "	.balign	16\n"
    "	.type	guardrail_fault_return, @function\n"
    "guardrail_fault_return:\n"
    ASM_ENDBR
    "	" ASM_RET
    "	.size	guardrail_fault_return, . - guardrail_fault_return\n"
    "	.popsection\n");

/* page_fault_oops() begins: it logs an oops of the registers in its first argument, and ends their thread. */
static int __kprobes on_bad_address(struct kprobe *probe, struct pt_regs *regs)
{
	struct pt_regs *faulted = (struct pt_regs *)regs->di;
	struct stack_info info;

	if (!guardrail_stack_of(regs->di, &info) || regs->di + sizeof(*faulted) > (unsigned long)info.end || !guardrail_contain(faulted, bad_address))
		return 0;
	regs->ip = (unsigned long)guardrail_fault_return;
	return 1;
}

/* With this the kernel does not turn the probe into a jump, which could not go elsewhere. */
static void __kprobes after_bad_address(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = {
	.symbol_name = "page_fault_oops", .pre_handler = on_bad_address, .post_handler = after_bad_address,
};

static struct notifier_block notifier = { .notifier_call = on_fault };

int __init guardrail_fault_init(void)
{
	int err = register_die_notifier(&notifier);

	if (err)
		return err;
	/* Without it the log has an oops of each fault that is contained. */
	probed = !register_kprobe(&probe);
	if (!probed)
		pr_info("the kernel has no page_fault_oops() to probe: faults at bad addresses are contained after it has logged an oops\n");
	return 0;
}

void guardrail_fault_exit(void)
{
	if (probed)
		unregister_kprobe(&probe);
	unregister_die_notifier(&notifier);
}
