// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * CPUs that run nothing else. The timer of each CPU looks at the next CPU, and if that is stuck at
 * the ones behind it. Work for a CPU must run within the time after which an entry counts as a loop
 * (watchdog.c). If not even the timer of the CPU has run, its interrupts are off, and an NMI looks
 * at what it does. If the timer runs but no process does, interrupts may arrive without end. If
 * nearly every look finds a guarded handler, its interrupt is disabled, as the kernel does with
 * interrupts that no handler serves. If all CPUs have interrupts off, loops of guarded modules look
 * themselves.
 */
#include <linux/ctype.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/kallsyms.h>
#include <linux/percpu.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <asm/apic.h>
#include <asm/nmi.h>

#include "domain/entry.h"
#include "domain/policy.h"
#include "domain/stack.h"
#include "report/report.h"
#include "watch/stuck.h"
#include "watch/watchdog.h"

/* How often a CPU is found in handlers, of how many looks. */
#define SAMPLES 50
#define MOST 45

/**
 * struct state - The state of a CPU.
 * @work: Runs where processes do.
 * @ran: When it ran.
 * @looked: When the CPU's timer ran.
 * @wanted: An NMI was sent to it.
 * @turned: When a loop first found that the timer has not run since @turned_at.
 * @turned_at: The value of @looked then.
 * @samples: How often the CPU before this one looked at it.
 * @hits: How often it found an interrupt handler.
 * @found: The handler.
 */
struct state {
	struct work_struct work;
	u64 ran;
	u64 looked;
	bool wanted;
	u64 turned, turned_at;
	unsigned int samples, hits;
	struct guardrail_interrupt found;
};
static DEFINE_PER_CPU(struct state, states);

/* How long a CPU may run nothing else, in nanoseconds; 0 for ever. */
static u64 longest;

/* The interrupt to disable, with a copy of its handler's name, since the module may be unloaded meanwhile. */
static struct guardrail_interrupt storm;
static char storm_function[KSYM_NAME_LEN];
static atomic_t storming;

/* The delay of a timer that has nothing to look for. */
#define LATE_NS (2 * NSEC_PER_SEC)

/* True where it was longer ago. Another CPU may have noted a time later than now. */
static bool is_past(const u64 *when, u64 now, u64 limit)
{
	return (s64)(now - READ_ONCE(*when)) > (s64)limit;
}

static void beat(struct work_struct *work)
{
	WRITE_ONCE(container_of(work, struct state, work)->ran, ktime_get_mono_fast_ns());
}

static void calm(struct work_struct *work)
{
	disable_irq_nosync(storm.irq);
	guardrail_report_storm(storm.domain, storm_function, storm.irq);
	atomic_set(&storming, 0);
}
static DECLARE_WORK(calming, calm);

/* Copies the name of a function of a module that may be unloaded. */
static void keep_name(const char *name)
{
	unsigned int i;

	for (i = 0; i < sizeof(storm_function) - 1; i++)
		if (get_kernel_nofault(storm_function[i], name + i) || !isprint(storm_function[i]))
			break;
	storm_function[i] = 0;
}

/* The CPU runs no process, though its timer runs. */
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
		keep_name(storm.function);
		/* Queue the work on this CPU, where processes run. */
		queue_work_on(smp_processor_id(), system_highpri_wq, &calming);
	}
	state->samples = state->hits = 0;
}

/* True where the CPU runs no process, so that it must be looked at again soon. */
static bool examine(unsigned int cpu, u64 limit, u64 now)
{
	struct state *state = per_cpu_ptr(&states, cpu);

	if (!is_past(&state->ran, now, limit)) {
		state->samples = state->hits = 0;
		return false;
	}
	if (!is_past(&state->looked, now, limit / 8)) {
		/*
		 * The timer ran after the last process, and not just a moment ago: an interrupt may be all that runs.
		 */
		if ((s64)(READ_ONCE(state->looked) - READ_ONCE(state->ran)) > (s64)limit / 2)
			sample(state, cpu);
	} else if (is_past(&state->looked, now, limit + LATE_NS) && !READ_ONCE(state->wanted)) {
		WRITE_ONCE(state->wanted, true);
		apic->send_IPI(cpu, NMI_VECTOR);
	}
	return true;
}

bool guardrail_stuck_look(unsigned int seconds)
{
	struct state *state = this_cpu_ptr(&states);
	u64 now = ktime_get_mono_fast_ns(), limit = guardrail_ends_entries() ? (u64)seconds * NSEC_PER_SEC : 0;
	unsigned int cpu;
	bool soon = false;

	WRITE_ONCE(state->looked, now);
	WRITE_ONCE(longest, limit);
	if (!limit) {
		/* Nothing is late when the limit is set again. */
		WRITE_ONCE(state->ran, now);
		return false;
	}
	queue_work_on(smp_processor_id(), system_highpri_wq, &state->work);
	for_each_cpu_wrap(cpu, cpu_online_mask, (smp_processor_id() + 1) % nr_cpu_ids) {
		if (cpu == smp_processor_id() || !examine(cpu, limit, now))
			break;
		/* No other CPU looks at the CPU behind it. */
		soon = true;
	}
	return soon;
}

/**
 * struct frame - The stack frame of an interrupt, which a return takes from the stack, and struct
 *   pt_regs ends with.
 * @ip: Instruction pointer.
 * @cs: Code segment.
 * @flags: Flags.
 * @sp: Stack pointer.
 * @ss: Stack segment.
 */
struct frame {
	unsigned long ip, cs, flags, sp, ss;
};

/*
 * Finds the stack frame by which an NMI that interrupted the kernel returns. NMIs may nest, so that
 * is not the stack frame that the handler sees but a copy above it. A CPU that keeps NMIs from
 * nesting (FRED) has no copy. NULL where neither is so.
 */
static struct frame *return_frame(struct pt_regs *regs)
{
	struct frame *shown = (struct frame *)&regs->ip;

	static_assert(sizeof(struct pt_regs) - offsetof(struct pt_regs, ip) == sizeof(struct frame));
#ifdef X86_FEATURE_FRED
	if (cpu_feature_enabled(X86_FEATURE_FRED))
		return shown;
#endif
	return memcmp(shown + 1, shown, sizeof(*shown)) ? NULL : shown + 1;
}

/* Ends the interrupted entry where that is possible. */
static bool end(struct pt_regs *regs)
{
	struct frame *frame = return_frame(regs);

	if (!frame || !guardrail_end_running(regs))
		return false;
	*frame = *(const struct frame *)&regs->ip;
	return true;
}

/* True where neither processes nor the timer have run on this CPU for too long. */
static bool is_stuck(const struct state *state)
{
	u64 now = ktime_get_mono_fast_ns(), limit = READ_ONCE(longest);

	return limit && is_past(&state->ran, now, limit) && is_past(&state->looked, now, limit + LATE_NS);
}

/*
 * Other NMIs, such as those of the kernel's own watchdog, are used as well: they arrive where no CPU is left to look.
 */
static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	struct state *state = this_cpu_ptr(&states);
	int handled = READ_ONCE(state->wanted) ? NMI_HANDLED : NMI_DONE;

	WRITE_ONCE(state->wanted, false);
	/* Code of this module may hold its own locks. */
	if (user_mode(regs) || regs->flags & X86_EFLAGS_IF || !is_stuck(state) || within_module(regs->ip, THIS_MODULE))
		return handled;
	if (end(regs)) {
		WRITE_ONCE(state->ran, ktime_get_mono_fast_ns());
		return NMI_HANDLED;
	}
	pr_warn_ratelimited("processor %u has its interrupts off and runs without an end, at %pS\n", smp_processor_id(), (void *)regs->ip);
	return handled;
}

/*
 * If neither another CPU nor an NMI is left to look, loops of the module's own code count down.
 * They look after so many turns. Two times are needed, since the clocks of a machine that was
 * stopped for a while jump.
 */
#define TURNS (1 << 20)
#define AGAIN_NS NSEC_PER_SEC
DEFINE_PER_CPU(int, guardrail_loops) = TURNS;
EXPORT_PER_CPU_SYMBOL_GPL(guardrail_loops);

void guardrail_loop_slow(unsigned long domain, unsigned long ip)
{
	struct guardrail_running running;
	struct state *state;
	u64 now, looked;

	if (unlikely(guardrail_stack_ends())) {
		guardrail_faulted(domain, "stack overflow", ip);
		return;
	}
	this_cpu_write(guardrail_loops, TURNS);
	if (likely(!irqs_disabled()))
		return;
	state = this_cpu_ptr(&states);
	if (!is_stuck(state))
		return;
	now = ktime_get_mono_fast_ns();
	looked = READ_ONCE(state->looked);
	if (state->turned_at != looked) {
		state->turned_at = looked;
		state->turned = now;
	}
	if (now - state->turned < AGAIN_NS)
		return;
	state->turned = now;
	if (!guardrail_running(&running))
		return;
	guardrail_report_loop(domain, running.record->entry->function, longest / NSEC_PER_SEC, ip);
	guardrail_note_loop(ip);
	WRITE_ONCE(state->ran, now);
	guardrail_faulted(domain, "endless loop", ip);
}
EXPORT_SYMBOL_GPL(guardrail_loop_slow);

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
