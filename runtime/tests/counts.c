// SPDX-License-Identifier: GPL-2.0-or-later
/* What entries leave of interrupts, preemption and RCU. */
#include <linux/bottom_half.h>
#include <linux/irq_work.h>
#include <linux/irqflags.h>
#include <linux/preempt.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "test.h"

CUSTOM(locks_stay);

static const struct guardrail_entry plain = { .domain = ONE, .function = "tested" };

static int readers(void)
{
#ifdef CONFIG_PREEMPT_RCU
	return current->rcu_read_lock_nesting;
#else
	return 0;
#endif
}

/* What an entry does, and what makes up for it. */
static void takes_preemption(void) { preempt_disable(); }
static void gives_preemption(void) { preempt_enable(); }
static void takes_bottom(void) { local_bh_disable(); }
static void gives_bottom(void) { local_bh_enable(); }
static void takes_interrupts(void) { local_irq_disable(); }
static void gives_interrupts(void) { local_irq_enable(); }
static void reads(void) { rcu_read_lock(); }
static void reads_no_more(void) { rcu_read_unlock(); }

static const struct {
	void (*take)(void), (*give)(void);
} pairs[] = {
	{ takes_preemption, gives_preemption }, { takes_bottom, gives_bottom }, { takes_interrupts, gives_interrupts },
	{ reads, reads_no_more },
};

/* Enters as a thunk does; the outcome is the number of violations. */
static noinline unsigned long violates(void (*function)(void), bool stays)
{
	static const struct guardrail_action action = { .kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "tested" };
	unsigned long before = guardrail_violations(ONE);
	struct guardrail_record record;

	if (guardrail_enter(&plain, &record))
		return 0;
	function();
	if (stays)
		guardrail_custom_locks_stay(&action, &record.call);
	guardrail_leave(&record);
	return guardrail_violations(ONE) - before;
}

/* Its domain calls itself, and makes up for it or not. */
static unsigned int inner_pair;

static void within(void)
{
	EXPECT(!violates(pairs[inner_pair].take, false));
	pairs[inner_pair].give();
}

static void within_only(void)
{
	EXPECT(!violates(pairs[inner_pair].take, false));
}

static bool in_interrupt_is;

/* The task that is interrupted is in the same domain. */
static void on_interrupt(struct irq_work *work)
{
	in_interrupt_is = violates(takes_preemption, false) == 1;
	preempt_enable();
}

static void is_interrupted(void)
{
	static struct irq_work work;

	init_irq_work(&work, on_interrupt);
	irq_work_queue(&work);
	irq_work_sync(&work);
}

static bool is_calm(int count, int nesting)
{
	return preempt_count() == count && readers() == nesting && !irqs_disabled();
}

static void left(void)
{
	int count = preempt_count(), nesting = readers();
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		/* Kernels without preemptible RCU count no readers. */
		unsigned long one = pairs[i].take != reads || IS_ENABLED(CONFIG_PREEMPT_RCU);

		EXPECT(violates(pairs[i].take, false) == one && is_calm(count, nesting) != one);
		EXPECT(violates(pairs[i].give, false) == one && is_calm(count, nesting));
		EXPECT(!violates(pairs[i].take, true) && is_calm(count, nesting) != one);
		EXPECT(!violates(pairs[i].give, true) && is_calm(count, nesting));
		inner_pair = i;
		EXPECT(!violates(within, false) && is_calm(count, nesting));
		EXPECT(violates(within_only, false) == one);
		pairs[i].give();
		EXPECT(is_calm(count, nesting));
		EXPECT(test_set_parameter("policy", "fail"));
		EXPECT(violates(pairs[i].take, false) == one && is_calm(count, nesting));
		pairs[i].take();
		EXPECT(violates(pairs[i].give, false) == one && is_calm(count, nesting) != one);
		pairs[i].give();
		EXPECT(test_set_parameter("policy", "log") && is_calm(count, nesting));
	}
	EXPECT(violates(is_interrupted, false) == 1 && in_interrupt_is && is_calm(count, nesting));
	test_result("interrupts, preemption and RCU that an entry leaves", true);
}

void test_counts(void)
{
	static const struct guardrail_module module = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "counts_test",
	};

	EXPECT(!guardrail_module_enter(&module));
	left();
	guardrail_module_leave(&module);
}
