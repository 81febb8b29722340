// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * CPUs that run nothing else: entries that loop with interrupts off, and endless interrupts.
 * Another CPU has to find them.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <asm/apic.h>
#include <asm/nmi.h>

#include "test.h"

/* An entry that was not ended ends by itself after this time. */
#define LIMIT_NS (20ULL * NSEC_PER_SEC)

static const struct guardrail_entry entry = { .domain = ONE, .dead = -ESHUTDOWN, .function = "tested" };
static u64 began;
static bool late;

static void begin(void)
{
	began = ktime_get_mono_fast_ns();
	late = false;
}

/* True while there is time left. */
static bool goes_on(void)
{
	if (ktime_get_mono_fast_ns() - began > LIMIT_NS)
		WRITE_ONCE(late, true);
	return !READ_ONCE(late);
}

/* Loops in code of the module. */
static noinline void loops(void)
{
	local_irq_disable();
	while (goes_on())
		cpu_relax();
}

/* Loops, and spends nearly all of the time in a function of the kernel. */
static noinline void loops_elsewhere(void)
{
	local_irq_disable();
	while (goes_on())
		mdelay(20);
}

/* True where the entry is ended, and its caller continues as before. */
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
	return entered == 1 && !READ_ONCE(late) && (long)record.call.result == -ESHUTDOWN && preempt_count() == count;
}

static int line;
static bool on;
static unsigned long n_raised, n_handled;
/* When the handler began first and ended last, and the time between that it ran. */
static u64 first_ns, last_ns, busy_ns;

/* Raises the interrupt: its vector is below that of the timer, as those of devices are. */
static bool trigger(void)
{
	struct irq_data *data = irq_get_irq_data(line);

	n_raised++;
	return data && data->chip->irq_retrigger && data->chip->irq_retrigger(data) > 0;
}

/*
 * A guarded handler, called by its thunk, of a line that stays raised: it interrupts again while it
 * is handled.
 */
static irqreturn_t handler(int irq, void *data)
{
	struct guardrail_record record = { .call = { .args = { irq } } };
	u64 start = ktime_get_mono_fast_ns();

	if (!n_handled)
		first_ns = start;
	if (READ_ONCE(on) && goes_on())
		trigger();
	if (guardrail_enter(&entry, &record) == 0) {
		n_handled++;
		mdelay(2);
	}
	guardrail_leave(&record);
	last_ns = ktime_get_mono_fast_ns();
	busy_ns += last_ns - start;
	return IRQ_HANDLED;
}

/*
 * True where the interrupt is disabled in time, but not before it was all that its processor did for the watchdog's time.
 * How often it was handled meanwhile depends on the processor time that the guest gets, and the share of time does not.
 */
static bool storm(void)
{
	bool is;

	begin();
	n_raised = n_handled = 0;
	busy_ns = 0;
	WRITE_ONCE(on, true);
	is = trigger();
	while (is && goes_on() && !irqd_irq_disabled(irq_get_irq_data(line)))
		msleep(20);
	WRITE_ONCE(on, false);
	synchronize_irq(line);
	return is && !READ_ONCE(late) && last_ns - first_ns > NSEC_PER_SEC && busy_ns > (last_ns - first_ns) / 10 * 9 &&
	       n_handled > n_raised / 10 * 9 && n_handled > 10;
}

static void storms(void)
{
	/* Interrupt lines of devices that PCs do not have any more. */
	static const u8 lines[] = { 5, 7, 3 };
	int i;

	for (i = 0; i < ARRAY_SIZE(lines); i++) {
		line = lines[i];
		if (!request_irq(line, handler, 0, "guardrail_test", &line))
			break;
	}
	if (EXPECT(i < ARRAY_SIZE(lines))) {
		EXPECT(storm());
		free_irq(line, &line);
	}
}

static u32 data[4] __aligned(GUARDRAIL_SLOT);
static atomic_t n_nmis;
static bool refused;

/* What the runtime does for guarded code takes locks, which the NMI may have interrupted. */
static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	struct guardrail_record record = { };
	unsigned long before = guardrail_violations(ONE);

	if (!READ_ONCE(on))
		return NMI_DONE;
	WRITE_ONCE(on, false);
	refused = guardrail_enter(&entry, &record) < 0 && (long)record.call.result == -ESHUTDOWN;
	/* Nothing is decided there, and so nothing reported. */
	guardrail_write_slow((unsigned long)data, 4, ONE, _THIS_IP_);
	guardrail_call_slow((unsigned long)data, ONE, _THIS_IP_);
	refused &= guardrail_violations(ONE) == before;
	atomic_inc(&n_nmis);
	return NMI_HANDLED;
}

/* Takes the runtime's locks all the time. */
static int asks(void *unused)
{
	while (!kthread_should_stop()) {
		guardrail_grant(ONE, (unsigned long)data, 3);
		guardrail_check_write(ONE, (unsigned long)data, 4);
		guardrail_revoke(ONE, (unsigned long)data, 3);
		cond_resched();
	}
	return 0;
}

static void nmis(void)
{
	struct task_struct *thread;
	int cpu = cpumask_any_but(cpu_online_mask, get_cpu()), i;

	put_cpu();
	if (!EXPECT(!register_nmi_handler(NMI_LOCAL, on_nmi, 0, "guardrail_test")))
		return;
	thread = kthread_create(asks, NULL, "guardrail_test");
	if (EXPECT(!IS_ERR(thread))) {
		kthread_bind(thread, cpu);
		wake_up_process(thread);
		for (i = 0; i < 200; i++) {
			int before = atomic_read(&n_nmis), tries;

			refused = false;
			WRITE_ONCE(on, true);
			apic->send_IPI(cpu, NMI_VECTOR);
			for (tries = 0; tries < 1000 && atomic_read(&n_nmis) == before; tries++)
				usleep_range(100, 200);
			if (!EXPECT(atomic_read(&n_nmis) == before + 1 && refused))
				break;
		}
		kthread_stop(thread);
	}
	unregister_nmi_handler(NMI_LOCAL, "guardrail_test");
	test_result("NMIs", true);
}

void test_stuck(void)
{
	static const struct guardrail_module module = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "stuck_test",
	};

	if (num_online_cpus() < 2)
		return;
	EXPECT(!guardrail_module_enter(&module));
	nmis();
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
