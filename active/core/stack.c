// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The stacks of domains: their memory, and their traces.
 *
 * The kernel's unwinder knows the stacks of tasks and of interrupts, and prints an empty trace from any other one. So where
 * the kernel warns or dies on the stack of a domain, this prints the frames of the driver and of the sender after it.
 */
#include <linux/bug.h>
#include <linux/kdebug.h>
#include <linux/rculist.h>
#include <linux/tracepoint.h>
#include <linux/vmalloc.h>
#include <asm/traps.h>
#include <asm/unwind.h>
#include <trace/events/error_report.h>

#include "domain.h"

/* Frames that are printed of one stack. */
#define FRAMES 100
/* Allocations that a stack may take; with free address space one in four is aligned. */
#define TRIES 32

unsigned long *active_stack_alloc(void)
{
	void *tried[TRIES], *stack = NULL;
	unsigned int n = 0;

	/* An area of vmalloc() has a page behind it that is not mapped, which is also below the next area. */
	while (n < TRIES && !stack) {
		void *area = vzalloc(THREAD_SIZE);

		if (area && IS_ALIGNED((unsigned long)area, THREAD_SIZE))
			stack = area;
		else if (area)
			tried[n++] = area;
		else
			break;
	}
	while (n--)
		vfree(tried[n]);
	return stack;
}

#ifdef CONFIG_UNWINDER_ORC
/* Prints a stack from a place on. @info says which stack it is; if it is empty, the unwinder finds out. */
static void print_stack(struct stack_info info, unsigned long sp, unsigned long bp, unsigned long ip)
{
	struct unwind_state state = { .stack_info = info, .task = current, .sp = sp, .bp = bp, .ip = ip };
	unsigned int n;

	for (n = 0; n < FRAMES && !unwind_done(&state); n++, unwind_next_frame(&state)) {
		unsigned long address = unwind_get_return_address(&state);

		if (!address)
			break;
		printk(KERN_WARNING " %pB\n", (void *)address);
	}
}

/* Prints the driver's stack from a place on, and then that of the thread or interrupt that runs it. */
static void print_domain(struct active_domain *d, unsigned long sp, unsigned long bp, unsigned long ip)
{
	struct stack_info own = { .type = STACK_TYPE_TASK, .begin = d->stack, .end = d->stack + THREAD_SIZE / sizeof(long) };
	struct stack_info other = { .type = STACK_TYPE_TASK };
	/* What active_switch() has pushed: r15, r14, r13, r12, rbx, rbp, and the address that it returns to. */
	unsigned long *saved = d->outside;

	printk(KERN_WARNING "guardrail: active %s: the driver's stack:\n", d->name);
	print_stack(own, sp, bp, ip);
	printk(KERN_WARNING "guardrail: active %s: the stack of %s/%d, which runs it:\n", d->name, current->comm, current->pid);
	print_stack(other, (unsigned long)(saved + 7), saved[5], saved[6]);
}
#else
static void print_domain(struct active_domain *d, unsigned long sp, unsigned long bp, unsigned long ip)
{
}
#endif

/* Context: the exception of a warning, on the stack that it came up on. */
static void warned(void *unused, enum error_detector detector, unsigned long id)
{
	struct active_domain *d;
	unsigned long sp, bp, ip;

	asm volatile("leaq 0(%%rip), %0\n\tmovq %%rsp, %1\n\tmovq %%rbp, %2" : "=r"(ip), "=r"(sp), "=r"(bp));
	rcu_read_lock();
	d = active_domain_at(sp);
	if (d)
		print_domain(d, sp, bp, ip);
	rcu_read_unlock();
}

/* Context: any exception. */
static int died(struct notifier_block *block, unsigned long value, void *data)
{
	const struct die_args *args = data;
	struct active_domain *d;

	if (!args->regs || (value != DIE_OOPS && !(value == DIE_TRAP && args->trapnr == X86_TRAP_DF)))
		return NOTIFY_DONE;
	rcu_read_lock();
	d = active_domain_at(args->regs->sp);
	/* The oops of a double fault follows. */
	if (d && value == DIE_TRAP)
		printk(KERN_EMERG "guardrail: active %s: its stack has overflowed\n", d->name);
	else if (d)
		print_domain(d, args->regs->sp, args->regs->bp, args->regs->ip);
	rcu_read_unlock();
	return NOTIFY_DONE;
}

static struct notifier_block deaths = { .notifier_call = died };

int active_traces_start(void)
{
	int err = register_trace_error_report_end(warned, NULL);

	if (err)
		return err;
	err = register_die_notifier(&deaths);
	if (err)
		unregister_trace_error_report_end(warned, NULL);
	return err;
}

void active_traces_stop(void)
{
	unregister_die_notifier(&deaths);
	unregister_trace_error_report_end(warned, NULL);
	tracepoint_synchronize_unregister();
}
