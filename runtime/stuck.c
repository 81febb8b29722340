// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Processors that run nothing else anymore. Each one has the next looked at by its timer: work for the processor has to have run within the time after
 * which a call is taken for an endless loop (watchdog.c). Where not even its timer has run, its interrupts are off, and an NMI looks at what it does. Where
 * the timer does run, but no process, it may be kept by interrupts that come again and again: those that a guarded handler is found in nearly each
 * time are disabled, as the kernel does with interrupts that nobody cares for.
 */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/percpu.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <asm/apic.h>
#include <asm/nmi.h>

#include "internal.h"

/* How often a processor is found in handlers, of how many times that it is looked at. */
#define SAMPLES 50
#define MOST 45

struct state {
	struct work_struct work;	/* runs where processes do */
	u64 ran;			/* when that was */
	u64 looked;			/* when its timer was there */
	bool wanted;			/* an NMI is on its way */
	/* Of what the processor before this one has seen. */
	unsigned int samples, hits;
	struct guardrail_interrupt found;
};
static DEFINE_PER_CPU(struct state, states);

/* An interrupt that is to be disabled. */
static struct guardrail_interrupt storm;
static atomic_t storming;

static void beat(struct work_struct *work)
{
	WRITE_ONCE(container_of(work, struct state, work)->ran, ktime_get_mono_fast_ns());
}

static void calm(struct work_struct *work)
{
	disable_irq_nosync(storm.irq);
	guardrail_report_storm(storm.domain, storm.function, storm.irq);
	atomic_set(&storming, 0);
}
static DECLARE_WORK(calming, calm);

/* The processor gets to no process, though its timer runs. */
static void sample(struct state *state, unsigned int cpu)
{
	struct guardrail_interrupt found;

	if (guardrail_interrupt_on(cpu, &found) && irq_get_irq_data(found.irq) && (!state->hits || found.irq == state->found.irq)) {
		state->found = found;
		state->hits++;
	}
	if (++state->samples < SAMPLES)
		return;
	if (state->hits >= MOST && !atomic_xchg(&storming, 1)) {
		storm = state->found;
		/* Here, where processes run. */
		queue_work_on(smp_processor_id(), system_highpri_wq, &calming);
	}
	state->samples = state->hits = 0;
}

/* On one processor, of the next: true where it is to be looked at again soon. */
static bool examine(unsigned int cpu, u64 limit, u64 now)
{
	struct state *state = per_cpu_ptr(&states, cpu);

	if (now - READ_ONCE(state->ran) < limit) {
		state->samples = state->hits = 0;
		return false;
	}
	if (now - READ_ONCE(state->looked) < limit) {
		sample(state, cpu);
	} else if (!READ_ONCE(state->wanted)) {
		WRITE_ONCE(state->wanted, true);
		apic->send_IPI(cpu, NMI_VECTOR);
	}
	return true;
}

bool guardrail_stuck_look(unsigned int seconds)
{
	struct state *state = this_cpu_ptr(&states);
	u64 now = ktime_get_mono_fast_ns();
	unsigned int cpu;

	WRITE_ONCE(state->looked, now);
	if (!seconds || !guardrail_ends_entries())
		return false;
	queue_work_on(smp_processor_id(), system_highpri_wq, &state->work);
	cpu = cpumask_next(smp_processor_id(), cpu_online_mask);
	if (cpu >= nr_cpu_ids)
		cpu = cpumask_first(cpu_online_mask);
	return cpu != smp_processor_id() && examine(cpu, (u64)seconds * NSEC_PER_SEC, now);
}

static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	struct state *state = this_cpu_ptr(&states);

	if (!READ_ONCE(state->wanted))
		return NMI_DONE;
	WRITE_ONCE(state->wanted, false);
	/* What this module does may hold locks of its own. */
	if (user_mode(regs) || within_module(regs->ip, THIS_MODULE))
		return NMI_HANDLED;
	if (guardrail_end_running(regs))
		WRITE_ONCE(state->ran, ktime_get_mono_fast_ns());
	else
		pr_warn_ratelimited("processor %u has its interrupts off and comes to no end, at %pS\n", smp_processor_id(), (void *)regs->ip);
	return NMI_HANDLED;
}

void guardrail_stuck_online(unsigned int cpu)
{
	struct state *state = per_cpu_ptr(&states, cpu);

	state->ran = state->looked = ktime_get_mono_fast_ns();
	state->wanted = false;
	state->samples = state->hits = 0;
}

int __init guardrail_stuck_init(void)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		INIT_WORK(&per_cpu_ptr(&states, cpu)->work, beat);
	return register_nmi_handler(NMI_LOCAL, on_nmi, 0, "guardrail");
}

/* The timers are gone. */
void guardrail_stuck_exit(void)
{
	unsigned int cpu;

	unregister_nmi_handler(NMI_LOCAL, "guardrail");
	for_each_possible_cpu(cpu)
		cancel_work_sync(&per_cpu_ptr(&states, cpu)->work);
	cancel_work_sync(&calming);
}
