// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Entries into guarded modules: which part of the stack is theirs, how they nest, and which are
 * refused.
 */
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <asm/ibt.h>
#include <asm/linkage.h>

#include "test.h"

#define THREADS 4

static const struct guardrail_entry plain = { .domain = ONE, .dead = -ESHUTDOWN, .function = "tested" };
static const struct guardrail_entry wide = { .domain = ONE, .flags = GUARDRAIL_ENTRY_CALLERS_STACK, .function = "tested" };
static const struct guardrail_entry second = { .domain = TWO, .function = "tested" };

static unsigned long inside(void)
{
	struct guardrail_usage usage;

	guardrail_usage(&usage);
	return usage.inside;
}

/* A function of the module with a variable; @callers is its caller's. */
static noinline bool own_part(const unsigned long *callers)
{
	unsigned long here[4] = { 0 };

	OPTIMIZER_HIDE_VAR(here[0]);
	return test_store((unsigned long)&here[1], 8, ONE) && !test_store((unsigned long)callers, 8, ONE);
}

static noinline bool all(const unsigned long *callers)
{
	unsigned long here[4] = { 0 };

	OPTIMIZER_HIDE_VAR(here[0]);
	return test_store((unsigned long)&here[1], 8, ONE) && test_store((unsigned long)callers, 8, ONE);
}

/* Enters as a thunk does, with nothing of the function above its record. */
static noinline bool enter(const struct guardrail_entry *entry, bool (*function)(const unsigned long *callers))
{
	unsigned long callers[2] = { 0 };
	struct guardrail_record record = { };
	bool is;

	/* The compiler may place them as it likes. */
	if (guardrail_enter(entry, &record))
		return false;
	is = function((unsigned long *)&record.call);
	guardrail_leave(&record);
	OPTIMIZER_HIDE_VAR(callers[0]);
	return is;
}

static void stack_of_entries(void)
{
	unsigned long callers[2] = { 0 };

	OPTIMIZER_HIDE_VAR(callers[0]);
	EXPECT(!inside() && enter(&plain, own_part) && !inside());
	EXPECT(enter(&wide, all) && !inside());
	/* Outside of all entries it is as before. */
	EXPECT(all(callers));
	test_result("the stack of an entry", true);
}

static noinline bool nested(const unsigned long *callers)
{
	return enter(&wide, all) && own_part(callers) && enter(&second, own_part) && enter(&plain, own_part) && inside() == 1 &&
	       own_part(callers);
}

static void nest(void)
{
	EXPECT(enter(&plain, nested) && !inside());
	test_result("entries within entries", true);
}

static bool in_interrupt_is;
static const unsigned long *interrupted;

static void on_interrupt(struct irq_work *work)
{
	/* Not entered by itself, on a stack of its own; then entered. The task's stack is not this one. */
	in_interrupt_is = all((unsigned long *)&work) && enter(&plain, own_part) && enter(&second, own_part) &&
			  !test_store((unsigned long)interrupted, 8, ONE);
}

static noinline bool with_interrupts(const unsigned long *callers)
{
	static struct irq_work work;
	int i;

	interrupted = callers;
	for (i = 0; i < 100; i++) {
		in_interrupt_is = false;
		init_irq_work(&work, on_interrupt);
		irq_work_queue(&work);
		irq_work_sync(&work);
		if (!in_interrupt_is || !own_part(callers))
			return false;
	}
	return true;
}

static void interrupts(void)
{
	EXPECT(enter(&plain, with_interrupts) && !inside());
	test_result("entries by interrupts", true);
}

static atomic_t failures;
static DEFINE_MUTEX(one_at_a_time);

/* Sleeps in the module, and runs on elsewhere. */
static noinline bool wanders(const unsigned long *callers)
{
	bool is;
	int i;

	for (i = 0; i < 20; i++) {
		set_cpus_allowed_ptr(current, cpumask_of(i % num_online_cpus()));
		usleep_range(100, 300);
		/* Violations are counted, so no others may happen in between. */
		mutex_lock(&one_at_a_time);
		is = own_part(callers);
		mutex_unlock(&one_at_a_time);
		if (!is)
			return false;
	}
	return true;
}

static int thread(void *done)
{
	if (!enter(&plain, wanders))
		atomic_inc(&failures);
	complete(done);
	return 0;
}

static void threads(void)
{
	struct completion done[THREADS];
	int i;

	for (i = 0; i < THREADS; i++) {
		init_completion(&done[i]);
		if (!EXPECT(!IS_ERR(kthread_run(thread, &done[i], "guardrail_test"))))
			complete(&done[i]);
	}
	for (i = 0; i < THREADS; i++)
		wait_for_completion(&done[i]);
	EXPECT(!atomic_read(&failures) && !inside());
	test_result("entries of threads that change the processor", true);
}

/* Ends in the module, as by kthread_complete_and_exit(). */
static int ends(void *done)
{
	static const struct guardrail_action action = { .kind = GUARDRAIL_ACTION_EXIT, .domain = ONE, .function = "tested" };
	struct guardrail_record record = { };

	if (guardrail_enter(&plain, &record) || inside() != 1)
		atomic_inc(&failures);
	guardrail_do_exit(&action, &record.call);
	if (inside())
		atomic_inc(&failures);
	complete(done);
	return 0;
}

static void threads_that_end(void)
{
	struct completion done;
	int i;

	for (i = 0; i < 100; i++) {
		init_completion(&done);
		if (!EXPECT(!IS_ERR(kthread_run(ends, &done, "guardrail_test"))))
			break;
		wait_for_completion(&done);
	}
	EXPECT(!atomic_read(&failures) && !inside());
	test_result("threads that end in a module", true);
}

static volatile bool went_on;

/* Ended in the midst of it, with everything taken that a driver may have. */
static noinline void is_ended(void)
{
	preempt_disable();
	local_bh_disable();
	rcu_read_lock();
	local_irq_disable();
	guardrail_unwind(ONE);
	went_on = true;
	local_irq_enable();
	rcu_read_unlock();
	local_bh_enable();
	preempt_enable();
}

static noinline void inner_is_ended(void)
{
	struct guardrail_record record;

	if (guardrail_enter(&second, &record) == 0)
		guardrail_unwind(TWO);
	guardrail_leave(&record);
	/* The innermost entry is the outer one's again. */
	guardrail_unwind(TWO);
	is_ended();
}

static DEFINE_SPINLOCK(spin);
static DEFINE_SPINLOCK(callers_spin);
static DEFINE_MUTEX(mutex);

/* Notes that a lock is taken or released, as a thunk does. */
static void lock_changes(int (*note)(const struct guardrail_action *action, struct guardrail_call *call), void *lock)
{
	struct guardrail_action action = {
		.kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "tested", .pointer.kind = GUARDRAIL_VALUE_CONST,
		.pointer.constant = (s64)lock,
	};
	struct guardrail_call call = { .caller = _THIS_IP_ };

	note(&action, &call);
}

/* Ended with locks that it has taken, and without one of its caller's that it has released. */
static noinline void locks(void)
{
	mutex_lock(&mutex);
	lock_changes(guardrail_custom_mutex_taken, &mutex);
	lock_changes(guardrail_custom_spin_given, &callers_spin);
	spin_unlock(&callers_spin);
	spin_lock_irq(&spin);
	lock_changes(guardrail_custom_spin_taken, &spin);
	lock_changes(guardrail_custom_spin_given, &spin);
	spin_unlock_irq(&spin);
	spin_lock_irq(&spin);
	lock_changes(guardrail_custom_spin_taken, &spin);
	guardrail_unwind(ONE);
}

bool test_ends(void (*function)(void))
{
	unsigned long a = inside(), b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5;
	struct guardrail_record record;
	int entered, count = preempt_count();

	OPTIMIZER_HIDE_VAR(b);
	OPTIMIZER_HIDE_VAR(c);
	OPTIMIZER_HIDE_VAR(d);
	OPTIMIZER_HIDE_VAR(e);
	OPTIMIZER_HIDE_VAR(f);
	went_on = false;
	entered = guardrail_enter(&plain, &record);
	if (entered < 0)
		return false;
	if (entered == 0) {
		function();
		went_on = true;
	}
	guardrail_leave(&record);
	return entered == 1 && !went_on && (long)record.call.result == -ESHUTDOWN && preempt_count() == count &&
	       !irqs_disabled() && inside() == a && b == a + 1 && c == a + 2 && d == a + 3 && e == a + 4 && f == a + 5;
}

#define MANY 12
static struct mutex many[MANY];

/* Ended with many locks. */
static noinline void takes_many(void)
{
	int i;

	for (i = 0; i < MANY; i++) {
		mutex_lock(&many[i]);
		lock_changes(guardrail_custom_mutex_taken, &many[i]);
	}
	guardrail_unwind(ONE);
}

static bool ended_by_interrupt;

static void ends_on_interrupt(struct irq_work *work)
{
	struct guardrail_record record;
	int entered = guardrail_enter(&second, &record);

	if (entered == 0)
		guardrail_unwind(TWO);
	ended_by_interrupt = entered == 1 && irqs_disabled();
	guardrail_leave(&record);
}

static noinline void is_interrupted(void)
{
	static struct irq_work work;

	init_irq_work(&work, ends_on_interrupt);
	irq_work_queue(&work);
	irq_work_sync(&work);
	is_ended();
}

/* A thread of a dead domain stops at the next action. */
static noinline void comes_by(void)
{
	static const struct guardrail_action action = {
		.kind = GUARDRAIL_ACTION_REQUIRE_WRITE, .domain = ONE, .function = "tested",
	};
	struct guardrail_call call = { };

	guardrail_do_require_write(&action, &call);
	guardrail_kill(ONE);
	guardrail_do_require_write(&action, &call);
	went_on = true;
}

static void ended(void)
{
	int i;

	for (i = 0; i < 100; i++)
		if (!EXPECT(test_ends(is_ended) && test_ends(inner_is_ended)))
			break;
	EXPECT(test_ends(is_interrupted) && ended_by_interrupt && !inside());
	/* Outside of all entries there is nothing to end. */
	guardrail_unwind(ONE);
	EXPECT(!guardrail_is_dead(ONE) && test_ends(comes_by) && guardrail_is_dead(ONE));
	test_result("entries that are ended from within", true);
}

static volatile bool forever = true;

static noinline void loops(void)
{
	spin_lock(&spin);
	lock_changes(guardrail_custom_spin_taken, &spin);
	while (forever)
		cpu_relax();
	spin_unlock(&spin);
}

/* Nearly all of the time is spent in a function of the kernel. */
static noinline void loops_elsewhere(void)
{
	while (forever)
		mdelay(20);
}

void test_call(void);
void test_call_over(void);
extern const u8 test_call_end[];

/* What the thunk does after the call: it notes the lock. */
__used void test_call_over(void)
{
	lock_changes(guardrail_custom_mutex_taken, &mutex);
}

/*
 * A thunk whose call of the kernel takes until the watchdog has changed where the thunk returns to, but 20 s at most, and
 * returns with the mutex.
 */
asm("	.pushsection .text, \"ax\"\n"
    "	.balign	16\n"
    "	.globl	test_call\n	.type	test_call, @function\n"
    "test_call:\n"
    ASM_ENDBR
    "	pushq	%rbx\n	pushq	%r12\n	pushq	%r12\n"
    "	movq	24(%rsp), %r12\n	movl	$20000, %ebx\n"
    "1:	movl	$1000, %edi\n"
    "	call	__udelay\n"
    "	cmpq	24(%rsp), %r12\n	jne	2f\n"
    "	decl	%ebx\n	jnz	1b\n"
    "2:	call	test_call_over\n"
    "	popq	%r12\n	popq	%r12\n	popq	%rbx\n"
    "	" ASM_RET
    "	.size	test_call, . - test_call\n"
    "test_call_end:\n"
    "	.popsection\n");

/* The mutex stands for one that the call takes: until the thunk has noted that, only the thunk knows. */
static noinline void locks_slowly(void)
{
	mutex_lock(&mutex);
	test_call();
}

static void endless(void)
{
	static struct guardrail_range calls;
	static const struct guardrail_module module = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "loops_test", .calls = &calls, .n_calls = 1,
	};

	calls = (struct guardrail_range){ (unsigned long)test_call, test_call_end - (u8 *)test_call };

	EXPECT(!guardrail_module_enter(&module));
	if (EXPECT(test_set_parameter("policy", "fail") && test_set_parameter("watchdog", "1"))) {
		EXPECT(test_ends(loops) && !spin_is_locked(&spin));
		EXPECT(test_ends(loops_elsewhere));
		EXPECT(test_ends(locks_slowly) && !mutex_is_locked(&mutex));
		EXPECT(test_set_parameter("watchdog", "0") && test_set_parameter("policy", "log"));
	}
	guardrail_module_leave(&module);
	test_result("entries without an end", true);
}

/* Returns with two locks, one of them taken by a function of its own that it calls as the kernel does. */
static noinline void keeps(void)
{
	struct guardrail_record record, inner;

	if (guardrail_enter(&plain, &record))
		return;
	if (guardrail_enter(&plain, &inner) == 0) {
		mutex_lock(&mutex);
		lock_changes(guardrail_custom_mutex_taken, &mutex);
		guardrail_leave(&inner);
	}
	spin_lock_irq(&spin);
	lock_changes(guardrail_custom_spin_taken, &spin);
	guardrail_leave(&record);
}

/* Has a function of its own take a lock, and another give it back. */
static noinline void keeps_within(void)
{
	struct guardrail_record record, inner;

	if (guardrail_enter(&plain, &record))
		return;
	if (guardrail_enter(&plain, &inner) == 0) {
		mutex_lock(&mutex);
		lock_changes(guardrail_custom_mutex_taken, &mutex);
		guardrail_leave(&inner);
	}
	if (guardrail_enter(&plain, &inner) == 0) {
		lock_changes(guardrail_custom_mutex_given, &mutex);
		mutex_unlock(&mutex);
		guardrail_leave(&inner);
	}
	guardrail_leave(&record);
}

static DECLARE_RWSEM(semaphore);

/* Releases what nobody has taken, and waits for what it holds. */
static noinline void locks_wrongly(void)
{
	struct guardrail_record record;

	if (guardrail_enter(&plain, &record))
		return;
	mutex_lock(&mutex);
	lock_changes(guardrail_custom_mutex_wanted, &mutex);
	lock_changes(guardrail_custom_mutex_taken, &mutex);
	lock_changes(guardrail_custom_mutex_wanted, &mutex); /* wrong */
	lock_changes(guardrail_custom_mutex_given, &mutex);
	lock_changes(guardrail_custom_mutex_wanted, &mutex);
	mutex_unlock(&mutex);
	lock_changes(guardrail_custom_mutex_given, &mutex); /* wrong */
	down_read(&semaphore);
	lock_changes(guardrail_custom_shared_taken, &semaphore);
	lock_changes(guardrail_custom_shared_wanted, &semaphore);
	lock_changes(guardrail_custom_exclusive_wanted, &semaphore); /* wrong */
	lock_changes(guardrail_custom_shared_given, &semaphore);
	up_read(&semaphore);
	lock_changes(guardrail_custom_exclusive_given, &semaphore); /* wrong */
	spin_lock(&spin);
	lock_changes(guardrail_custom_spin_taken, &spin);
	lock_changes(guardrail_custom_spin_given, &spin);
	spin_unlock(&spin);
	lock_changes(guardrail_custom_spin_given, &spin); /* wrong */
	guardrail_leave(&record);
}

static void held(void)
{
	unsigned long before = guardrail_violations(ONE);
	int count = preempt_count(), i;
	bool well;

	spin_lock(&callers_spin);
	well = test_ends(locks);
	EXPECT(well && spin_is_locked(&callers_spin) && !spin_is_locked(&spin) && !mutex_is_locked(&mutex));
	spin_unlock(&callers_spin);
	EXPECT(guardrail_violations(ONE) == before);
	for (i = 0; i < MANY; i++)
		mutex_init(&many[i]);
	EXPECT(test_ends(takes_many));
	for (i = 0; i < MANY; i++)
		EXPECT(!mutex_is_locked(&many[i]));
	keeps_within();
	EXPECT(guardrail_violations(ONE) == before);
	locks_wrongly();
	EXPECT(guardrail_violations(ONE) == before + 5);
	before = guardrail_violations(ONE);
	keeps();
	EXPECT(guardrail_violations(ONE) == before + 2 && mutex_is_locked(&mutex) && spin_is_locked(&spin) && irqs_disabled());
	spin_unlock_irq(&spin);
	mutex_unlock(&mutex);
	EXPECT(test_set_parameter("policy", "fail"));
	keeps();
	EXPECT(guardrail_violations(ONE) == before + 4 && !mutex_is_locked(&mutex) && !spin_is_locked(&spin));
	EXPECT(!irqs_disabled() && preempt_count() == count);
	EXPECT(test_set_parameter("policy", "log") && !inside());
	test_result("locks that an entry holds", true);
}

static void dead(void)
{
	static const struct guardrail_module module = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "dead_test",
	};
	struct guardrail_record record = { .call = { .result = 1, .second = 1 } };

	guardrail_kill(ONE);
	guardrail_kill(0);
	guardrail_kill(GUARDRAIL_DOMAINS);
	EXPECT(guardrail_is_dead(ONE) && !guardrail_is_dead(TWO) && !guardrail_is_dead(0));
	EXPECT(guardrail_enter(&plain, &record) && record.call.result == -ESHUTDOWN && !record.call.second);
	EXPECT(enter(&second, own_part) && !inside());
	/* The next module of the domain begins anew. */
	EXPECT(!guardrail_module_enter(&module) && !guardrail_is_dead(ONE));
	EXPECT(enter(&plain, own_part));
	guardrail_module_leave(&module);
	test_result("a dead domain", true);
}

void test_entries(void)
{
	stack_of_entries();
	nest();
	interrupts();
	threads();
	threads_that_end();
	held();
	ended();
	dead();
	endless();
}
