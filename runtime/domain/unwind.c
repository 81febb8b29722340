// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ends entries from within. guardrail_enter() stores what a function has to keep for its caller. To end the entry, it
 * returns to the thunk a second time, and all stack frames in between are given up: those of the module, and those of
 * the runtime.
 */
#include <linux/bottom_half.h>
#include <linux/irqflags.h>
#include <linux/objtool.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <asm/ibt.h>
#include <asm/linkage.h>

#include "base/symbols.h"
#include "domain/code.h"
#include "domain/entry.h"
#include "domain/frames.h"
#include "domain/inject.h"
#include "domain/ops.h"
#include "domain/policy.h"
#include "domain/unwind.h"

/* The assembly below relies on these offsets. */
static_assert(offsetof(struct guardrail_record, saved) == 32);
static_assert(offsetof(struct guardrail_saved, flags) == 64);

void guardrail_resume(struct guardrail_record *record);

#ifdef CONFIG_CALL_PADDING
#define ROOM ".skip " __stringify(CONFIG_FUNCTION_PADDING_BYTES) ", 0x90\n"
#else
#define ROOM ""
#endif

#define FUNCTION(name)						\
	"	.balign	16\n"					\
	ROOM							\
	"	.globl	" #name "\n"				\
	"	.type	" #name ", @function\n"			\
	#name ":\n"						\
	ASM_ENDBR

asm("	.pushsection .text, \"ax\"\n"
    FUNCTION(guardrail_enter)
    "	movq	%rbx, 32(%rsi)\n"
    "	movq	%rbp, 40(%rsi)\n"
    "	movq	%r12, 48(%rsi)\n"
    "	movq	%r13, 56(%rsi)\n"
    "	movq	%r14, 64(%rsi)\n"
    "	movq	%r15, 72(%rsi)\n"
    "	leaq	8(%rsp), %rax\n"
    "	movq	%rax, 80(%rsi)\n"
    "	movq	(%rsp), %rax\n"
    "	movq	%rax, 88(%rsi)\n"
    "	pushfq\n"
    "	popq	96(%rsi)\n"
    "	jmp	guardrail_enter_noted\n"
    "	.size	guardrail_enter, . - guardrail_enter\n"

    FUNCTION(guardrail_resume)
    "	movq	32(%rdi), %rbx\n"
    "	movq	40(%rdi), %rbp\n"
    "	movq	48(%rdi), %r12\n"
    "	movq	56(%rdi), %r13\n"
    "	movq	64(%rdi), %r14\n"
    "	movq	72(%rdi), %r15\n"
    "	movq	80(%rdi), %rsp\n"
    "	pushq	88(%rdi)\n"
    "	movl	$1, %eax\n"
    "	cld\n"
    "	" ASM_RET
    "	.size	guardrail_resume, . - guardrail_resume\n"
    "	.popsection\n");
STACK_FRAME_NON_STANDARD(guardrail_resume);
EXPORT_SYMBOL_GPL(guardrail_enter);

void guardrail_put_back(const struct guardrail_saved *saved)
{
	bool interruptible = saved->flags & X86_EFLAGS_IF;

#ifdef CONFIG_PREEMPT_RCU
	while (current->rcu_read_lock_nesting > saved->rcu_nesting)
		rcu_read_unlock();
	while (current->rcu_read_lock_nesting < saved->rcu_nesting)
		rcu_read_lock();
#endif
	while (current->pagefault_disabled > saved->pagefault_disabled)
		pagefault_enable();
	while (current->migration_disabled > saved->migration_disabled)
		migrate_enable();
	if (preempt_count() != saved->preempt_count)
		preempt_count_set(saved->preempt_count);
	if (interruptible == irqs_disabled()) {
		if (interruptible)
			local_irq_enable();
		else
			local_irq_disable();
	}
	/* Run the softirqs that were delayed. */
	if (interruptible && !in_interrupt() && !irqs_disabled()) {
		local_bh_disable();
		local_bh_enable();
	}
}

bool guardrail_can_end(const struct guardrail_record *record, unsigned long sp)
{
	struct stack_info info;

	if (!record->entry || record->saved.unwound)
		return false;
	/* The caller may run on another stack than the entry. */
	if (!guardrail_stack_of(sp, &info) && !guardrail_own_stack_of(sp, (unsigned long)record, &info))
		return false;
	/* The exit function runs to its end, unless what it leaves is revoked without it. */
	if (record->entry->flags & GUARDRAIL_ENTRY_EXIT && !guardrail_is_dead(record->entry->domain) && !guardrail_ends_entries())
		return false;
	return record->saved.sp > sp && record->saved.sp < (unsigned long)info.end;
}

void guardrail_end(struct guardrail_record *record)
{
	u32 domain = record->entry->domain;
	struct guardrail_locks own;
	bool undone = false;
	int held;

	record->saved.unwound = 1;
	record->call.result = record->entry->dead;
	record->call.second = 0;
	if (static_branch_unlikely(&guardrail_transacts))
		undone = guardrail_domain_ops->transact_undoes(record);
	if (!undone)
		set_bit(domain, &guardrail_ended_domains);
	guardrail_locks_of(record, &own);
	/* It may have been about to sleep. */
	if (in_task())
		__set_current_state(TASK_RUNNING);
	held = preempt_count() - record->saved.preempt_count;
	if (!guardrail_locks_back(&own, record) && held)
		pr_warn_ratelimited("%s of domain %u was ended as if it held a lock that is not known: preemption was counted %#x more than at its begin\n",
				    record->entry->function, domain, held);
	/* The kernel may use objects in the stack frames that end. */
	guardrail_frames_end(current_stack_pointer, record->saved.sp);
	if (own.n)
		pr_info_ratelimited("%u locks are as they were when %s of domain %u was called\n", own.n, record->entry->function, domain);
	if (undone)
		guardrail_domain_ops->transact_undone(record);
	guardrail_domain_ops->entry_over(record, true);
	guardrail_resume(record);
	BUG();
}

void guardrail_unwind(u32 domain)
{
	struct guardrail_record *record = guardrail_innermost();

	if (!record || !guardrail_can_end(record, current_stack_pointer) || record->entry->domain != domain) {
		pr_warn_ratelimited("domain %u goes on, since it was not entered by a call that can be ended\n", domain);
		return;
	}
	guardrail_end(record);
}
EXPORT_SYMBOL_GPL(guardrail_unwind);

void guardrail_unwind_caller(const struct guardrail_record *ended)
{
	const struct guardrail_record *record = ended->previous;

	if (record && record->entry && record->entry->domain == ended->entry->domain && guardrail_is_guarded(ended->call.caller) &&
	    guardrail_can_end(record, current_stack_pointer))
		guardrail_unwind(ended->entry->domain);
}

void guardrail_crossing(u32 domain, const struct guardrail_call *call)
{
	const struct guardrail_record *record = guardrail_innermost();

	if (!record || &record->call == call || record->saved.unwound)
		return;
	if (guardrail_is_dead(domain))
		guardrail_unwind(domain);
	guardrail_injected(domain, call->caller);
}
