// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Faults of the processor in the code of guarded modules. The kernel tells of them before it ends the thread, and goes on where the registers
 * say if it is told to: there the entry is ended. Faults in what the kernel does for a module are as ever, since it may hold locks.
 */
#include <linux/kdebug.h>
#include <linux/ptrace.h>
#include <asm/trapnr.h>

#include "internal.h"

/* Room below the stack pointer of the module's code that is left alone. */
#define ROOM 256

/* Where a thread goes on whose entry is to be ended. */
static noinline void go_on(unsigned long ip, unsigned long domain, const char *what)
{
	guardrail_faulted(domain, what, ip);
	/* Nothing has changed since it was found that the entry can be ended, unless the policy has. */
	BUG();
}

/* The entry that this code of a module runs in; NULL where it is none, or nothing is to be ended. */
static struct guardrail_record *entry_at(struct pt_regs *regs)
{
	if (!regs || user_mode(regs) || !guardrail_ends_entries() || !guardrail_is_guarded(regs->ip))
		return NULL;
	return guardrail_innermost();
}

bool guardrail_divert(struct pt_regs *regs, const struct guardrail_record *record, const char *what)
{
	if (!guardrail_can_end(record, regs->sp))
		return false;
	regs->di = regs->ip;
	regs->si = record->entry->domain;
	regs->dx = (unsigned long)what;
	regs->sp = ((regs->sp - ROOM) & ~15UL) - 8;
	regs->ip = (unsigned long)go_on;
	regs->flags &= ~(X86_EFLAGS_DF | X86_EFLAGS_AC);
	return true;
}

static int on_fault(struct notifier_block *block, unsigned long event, void *data)
{
	struct die_args *args = data;
	const struct guardrail_record *record;
	const char *what;

	if (event != DIE_TRAP && event != DIE_GPF && event != DIE_OOPS)
		return NOTIFY_DONE;
	record = entry_at(args->regs);
	if (!record)
		return NOTIFY_DONE;
	what = event == DIE_OOPS ? "access to a bad address" :
	       event == DIE_GPF ? "access to an address that is none" :
	       args->trapnr == X86_TRAP_DE ? "division by zero" : "instruction that traps";
	return guardrail_divert(args->regs, record, what) ? NOTIFY_STOP : NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = on_fault };

int __init guardrail_fault_init(void)
{
	return register_die_notifier(&notifier);
}

void guardrail_fault_exit(void)
{
	unregister_die_notifier(&notifier);
}
