// SPDX-License-Identifier: GPL-2.0-or-later
/* lockdep's suite. */
#include "exam.h"
#include "locking.h"
#include "locking-selftest.c"

/* What the suite has besides lock variables. */
static struct exam_ww {
	struct ww_mutex mutexes[3];
	struct ww_acquire_ctx contexts[2];
} exam_ww[EXAM_CASES];

/* An interrupt or a softirq does a part of a case. */
static struct exam_deferred {
	void (*one)(void);
	struct irq_work work;
	struct tasklet_struct tasklet;
} exam_deferred;

/* The case under way does the part whose turn it is. */
static noinline void exam_do(void (*one)(void))
{
	exam_parts.at = 0;
	one();
}

static void exam_work(struct irq_work *work)
{
	exam_do(exam_deferred.one);
}

static void exam_tasklet(struct tasklet_struct *tasklet)
{
	exam_do(exam_deferred.one);
}

/**
 * exam_defer() - Has a part of a case done in an interrupt or a softirq, and waits for it.
 * @one: The case.
 * @context: Where.
 * @preempt: The preempt_count to wait with.
 *
 * Context: As the part before has left it, and it is left so again.
 */
static noinline void exam_defer(void (*one)(void), enum exam_context context, int preempt)
{
	bool off = irqs_disabled();
	int count = preempt_count();

	preempt_count_set(preempt);
	raw_local_irq_enable();
	exam_deferred.one = one;
	if (context == EXAM_HARDIRQ) {
		init_irq_work(&exam_deferred.work, exam_work);
		irq_work_queue(&exam_deferred.work);
		irq_work_sync(&exam_deferred.work);
	} else {
		tasklet_setup(&exam_deferred.tasklet, exam_tasklet);
		tasklet_schedule(&exam_deferred.tasklet);
		tasklet_kill(&exam_deferred.tasklet);
	}
	if (off)
		raw_local_irq_disable();
	preempt_count_set(count);
}

/* Runs a case with locks of its own. Some cases leave locks held, interrupts off, or a wrong preempt_count. */
static noinline void exam_locking(void (*one)(void))
{
	int preempt = preempt_count();
	struct exam_ww *ww;
	static int next;

	if (next >= EXAM_CASES)
		return;
	exam_parts.of_case = next++;
	ww = &exam_ww[exam_parts.of_case];
	exam_o = &ww->mutexes[0];
	exam_o2 = &ww->mutexes[1];
	exam_o3 = &ww->mutexes[2];
	exam_t = &ww->contexts[0];
	exam_t2 = &ww->contexts[1];
	exam_parts.at = 0;
	exam_parts.turn = 0;
	reset_locks();
	do {
		enum exam_context context = exam_parts.contexts[exam_parts.turn];

		if (context == EXAM_TASK)
			exam_do(one);
		else
			exam_defer(one, context, preempt);
	} while (exam_parts.turn++ < exam_parts.at);
	preempt_count_set(preempt);
	raw_local_irq_enable();
}

/* The cases, of tests/exams/cases.txt. */
#define EXAM_CASE(function) static void case_##function(struct kunit *test) { exam_locking(function); }
#include "locking_cases.h"
#undef EXAM_CASE

static struct kunit_case exam_cases[] = {
#define EXAM_CASE(function) { .run_case = case_##function, .name = #function },
#include "locking_cases.h"
	{}
};

static struct kunit_suite exam_suite = { .name = "locking", .test_cases = exam_cases };

exam(&exam_suite);
MODULE_LICENSE("GPL");
