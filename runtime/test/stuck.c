// SPDX-License-Identifier: GPL-2.0-or-later
/* Processors that run nothing else: entries that loop with interrupts off, and interrupts that come again and again. Another processor has to find them. */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>

#include "test.h"

/* After so long what was not ended ends by itself. */
#define LIMIT_NS (20ULL * NSEC_PER_SEC)

static const struct guardrail_entry entry = { .domain = ONE, .dead = -ESHUTDOWN, .function = "tested" };
static u64 began;
static bool late;

static void begin(void)
{
	began = ktime_get_mono_fast_ns();
	late = false;
}

/* True where there is still time. */
static bool goes_on(void)
{
	if (ktime_get_mono_fast_ns() - began > LIMIT_NS)
		WRITE_ONCE(late, true);
	return !READ_ONCE(late);
}

/* In code of the module. */
static noinline void loops(void)
{
	local_irq_disable();
	while (goes_on())
		cpu_relax();
}

/* Nearly all of the time in a function of the kernel. */
static noinline void loops_elsewhere(void)
{
	local_irq_disable();
	while (goes_on())
		mdelay(20);
}

/* True where the entry is ended, and the caller goes on as it was. */
static noinline bool is_ended(void (*function)(void))
{
	struct guardrail_record record;
	int entered, count = preempt_count();

	begin();
	entered = guardrail_enter(&entry, &record);
	if (entered < 0)
		return false;
	if (entered == 0)
		function();
	guardrail_leave(&record);
	local_irq_enable();
	return entered == 1 && !READ_ONCE(late) && (long)record.frame.result == -ESHUTDOWN && preempt_count() == count;
}

static struct irq_work again;
static int line;
static bool on;
static unsigned long n_handled;

/* A guarded handler, by its thunk. */
static irqreturn_t handler(int irq, void *data)
{
	struct guardrail_record record = { .frame = { .args = { irq } } };

	if (guardrail_enter(&entry, &record) == 0) {
		n_handled++;
		mdelay(2);
	}
	guardrail_leave(&record);
	return IRQ_HANDLED;
}

/* A line that nobody calms: it interrupts again as soon as it was handled. */
static void interrupts(struct irq_work *work)
{
	generic_handle_irq(line);
	if (READ_ONCE(on) && goes_on() && !irqd_irq_disabled(irq_get_irq_data(line)))
		irq_work_queue(work);
}

/* How it ends. */
static bool storm(void)
{
	bool is;

	begin();
	n_handled = 0;
	WRITE_ONCE(on, true);
	init_irq_work(&again, interrupts);
	preempt_disable();
	irq_work_queue(&again);
	preempt_enable();
	while (goes_on() && !irqd_irq_disabled(irq_get_irq_data(line)))
		msleep(20);
	is = !READ_ONCE(late) && n_handled > 100;
	WRITE_ONCE(on, false);
	irq_work_sync(&again);
	return is;
}

static void storms(void)
{
	line = irq_alloc_desc(NUMA_NO_NODE);
	if (EXPECT(line > 0)) {
		irq_set_chip_and_handler(line, &dummy_irq_chip, handle_simple_irq);
		if (EXPECT(!request_irq(line, handler, 0, "guardrail_test", &line))) {
			EXPECT(storm());
			free_irq(line, &line);
		}
		irq_free_desc(line);
	}
}

void test_stuck(void)
{
	static const struct guardrail_module module = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "stuck_test",
	};

	if (num_online_cpus() < 2)
		return;
	EXPECT(!guardrail_module_enter(&module));
	if (EXPECT(test_set_parameter("policy", "fail") && test_set_parameter("watchdog", "1"))) {
		EXPECT(is_ended(loops));
		EXPECT(is_ended(loops_elsewhere));
		test_result("loops with interrupts off", true);
		storms();
		EXPECT(test_set_parameter("watchdog", "0") && test_set_parameter("policy", "log"));
		test_result("interrupts without an end", true);
	}
	guardrail_module_leave(&module);
}
