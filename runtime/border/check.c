// SPDX-License-Identifier: GPL-2.0-or-later
/* Slow paths: the quick check failed, so this decides exactly, and reports violations. */
#include "base/limits.h"
#include "border/check.h"
#include "border/target.h"
#include "domain/entry.h"
#include "domain/frames.h"
#include "domain/imports.h"
#include "domain/ops.h"
#include "domain/stack.h"
#include "domain/thread.h"
#include "report/report.h"
#include "rights/mask.h"
#include "rights/ranges.h"
#include "rights/references.h"
#include "rights/sent.h"
#include "rights/table.h"
#include "transact/quick.h"

DEFINE_PER_CPU(struct guardrail_slow_counts, guardrail_slow_counts);

/* Objects on the stack that the kernel uses must not be written; nearly always there are none. */
static __always_inline bool is_in_use(unsigned long addr, unsigned long n)
{
	return unlikely(guardrail_any_frames()) && guardrail_frame_use(addr, n);
}

bool guardrail_may_write_stack(unsigned long addr, unsigned long n)
{
	return guardrail_on_stack(addr, n) && !is_in_use(addr, n) && !guardrail_returns_by(addr, n, 0);
}

/* The memory of the packet that the driver is called with to send it: the first store there gives the right to it. */
static bool is_sent(unsigned long addr, unsigned long n, unsigned long domain)
{
	const struct guardrail_record *record;

	if (!test_bit(domain, &guardrail_senders))
		return false;
	record = guardrail_innermost();
	return record && guardrail_sent_at(domain, record->call.args[0], addr, n);
}

static void check(unsigned long addr, unsigned long n, unsigned long domain, unsigned long ip)
{
	unsigned long first;

	if (!n)
		return;
	/* Only code that the kernel calls by no thunk runs there. To decide, and to report, takes locks. */
	if (unlikely(in_nmi())) {
		guardrail_limit_reached(GUARDRAIL_LIMIT_NMI);
		return;
	}
	if (guardrail_may_write_stack(addr, n)) {
		this_cpu_inc(guardrail_slow_counts.stack);
		/*
		 * With a populated table, checks of stores there do not fault any more. A fault costs far more than
		 * this.
		 */
		populate(tag_of(addr), tag_of(addr));
		return;
	}
	if (is_sent(addr, n, domain))
		return;
	first = guardrail_first_denied(domain, addr, n);
	/* File systems store to the page cache often; whether the target is a reference count takes a walk of all threads. */
	if (first == addr + n || guardrail_is_thread_state(addr, n) || guardrail_domain_ops->may_store(domain, addr, n) ||
	    guardrail_is_reference(domain, addr, n))
		return;
	this_cpu_inc(guardrail_slow_counts.denied);
	guardrail_report_write(addr, n, first, domain, ip);
}

/*
 * True for a range between this stack frame and a near entry of the module. Variables that are
 * written by pointer lie there.
 */
static __always_inline bool is_between(unsigned long addr, unsigned long n, unsigned long sp)
{
	unsigned long limit;

	if (addr - sp >= THREAD_SIZE)
		return false;
	limit = guardrail_stack_limit();
	return addr + n <= limit && limit - sp < THREAD_SIZE;
}

static noinline void write_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip, unsigned long sp)
{
	unsigned long at = addr % GUARDRAIL_SLOT;

	this_cpu_inc(guardrail_slow_counts.write);
	if (likely(guardrail_stored_before(addr, size, sp)) && !is_in_use(addr, size)) {
		this_cpu_inc(guardrail_slow_counts.stack);
		return;
	}
	if (is_between(addr, size, sp) && !is_in_use(addr, size) && !guardrail_returns_by(addr, size, sp)) {
		this_cpu_inc(guardrail_slow_counts.stack);
		populate(tag_of(addr), tag_of(addr));
		return;
	}
	/* Most of these stores go to a part of a slot that the domain may write. */
	if (likely(addr >= KERNEL_HALF && at + size <= GUARDRAIL_SLOT && writes_part(tag_of(addr), domain, slot_mask(addr, addr + size)))) {
		this_cpu_inc(guardrail_slow_counts.part);
		return;
	}
	check(addr, size, domain, ip);
}

/* The store is a part of a transaction, or lies where tags cannot be read while one is under way. */
static noinline void transacting(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip, unsigned long sp)
{
	if (!is_usual(addr, size, domain))
		write_slow(addr, size, domain, ip, sp);
	guardrail_transact_store(addr, size, ip);
}

void guardrail_write_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip)
{
	unsigned long sp = current_stack_pointer;

	/* The compiler would read the register again where it is used, and calls lie between. */
	OPTIMIZER_HIDE_VAR(sp);
	if (!is_transacting())
		write_slow(addr, size, domain, ip, sp);
	else if (!quick_store(addr, size, domain, ip))
		transacting(addr, size, domain, ip, sp);
}
EXPORT_SYMBOL_GPL(guardrail_write_slow);

void guardrail_range_slow(unsigned long addr, unsigned long len, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.range);
	check(addr, len, domain, ip);
	if (is_transacting())
		guardrail_transact_store(addr, len, ip);
}
EXPORT_SYMBOL_GPL(guardrail_range_slow);

void guardrail_percpu_slow(unsigned long offset, unsigned long size, unsigned long domain, unsigned long ip)
{
	this_cpu_inc(guardrail_slow_counts.percpu);
	/* The store may run on another CPU. A domain that may write the variable of one CPU may write that of each. */
	check((unsigned long)raw_cpu_ptr((void __percpu *)offset), size, domain, ip);
	/* A transaction stays on its CPU. */
	if (is_transacting())
		guardrail_transact_store((unsigned long)raw_cpu_ptr((void __percpu *)offset), size, ip);
}
EXPORT_SYMBOL_GPL(guardrail_percpu_slow);

void guardrail_beyond_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip)
{
	/* What is no variable of the module is for the check of the store. */
	if (!guardrail_is_variable(domain, addr))
		return;
	this_cpu_inc(guardrail_slow_counts.denied);
	guardrail_report_beyond(addr, size, domain, ip);
}
EXPORT_SYMBOL_GPL(guardrail_beyond_slow);

unsigned long guardrail_call_slow(unsigned long target, unsigned long domain, unsigned long ip)
{
	unsigned long call;

	this_cpu_inc(guardrail_slow_counts.icall);
	if (unlikely(in_nmi())) {
		guardrail_limit_reached(GUARDRAIL_LIMIT_NMI);
		return target;
	}
	call = guardrail_target(domain, target);
	if (call)
		return call;
	this_cpu_inc(guardrail_slow_counts.denied);
	guardrail_report_icall(target, domain, ip);
	return target;
}
EXPORT_SYMBOL_GPL(guardrail_call_slow);
