// SPDX-License-Identifier: GPL-2.0-or-later
/* Entries that are transactions: what they wrote is undone where they are ended, and stays where they return. */
#include <linux/irq_work.h>
#include <linux/kmod.h>
#include <linux/prandom.h>

#include "test.h"

#define SIZE 4096
#define MANY 2000
/* More than a log can hold. */
#define TOO_MANY 20000

static u8 *memory, *before;
static atomic_t number = ATOMIC_INIT(5);
static int n_called;

static noinline void called(void)
{
	n_called++;
}

static const struct guardrail_entry chosen = {
	.domain = ONE, .flags = GUARDRAIL_ENTRY_SELECTED, .dead = -ESHUTDOWN, .function = "chosen",
};
static const struct guardrail_entry other = { .domain = ONE, .dead = -ESHUTDOWN, .function = "other" };
static const struct guardrail_entry *const entries[] = { &chosen, &other };
static const struct guardrail_import imports[] = { { .function = (unsigned long)called, .call = (unsigned long)called } };
static const struct guardrail_module module = {
	.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "transact_test", .imports = imports,
	.n_imports = ARRAY_SIZE(imports), .transacts = entries, .n_transacts = ARRAY_SIZE(entries),
};

/* A store as guarded code makes it while a transaction is under way: the slow path sees it first. */
static void store(unsigned long at, unsigned long n, u64 value)
{
	guardrail_write_slow((unsigned long)memory + at, n, ONE, _THIS_IP_);
	memcpy(memory + at, &value, n);
}

static void stores(unsigned int times)
{
	struct rnd_state state;
	unsigned int i;

	prandom_seed_state(&state, 1);
	for (i = 0; i < times; i++) {
		unsigned long n = 1UL << (prandom_u32_state(&state) % 4);

		store(ALIGN_DOWN(prandom_u32_state(&state) % SIZE, n), n, prandom_u32_state(&state) * 0x100000001ULL);
	}
}

/* An atomic addition: the slow path reads the instruction. */
static noinline void add(void)
{
	unsigned long at;

	asm volatile("leaq 1f(%%rip), %0" : "=r" (at));
	guardrail_write_slow((unsigned long)&number, sizeof(number), ONE, at);
	asm volatile("1:	lock addl $3, %0" : "+m" (number));
}

static void put_off(void)
{
	const struct guardrail_action action = { .domain = ONE, .function = "called", .target = (unsigned long)called };
	struct guardrail_call call = { };

	EXPECT(guardrail_do_defer(&action, &call) == 1);
}

static noinline void is_ended(void)
{
	stores(MANY);
	guardrail_range_slow((unsigned long)memory + 100, 3000, ONE, _THIS_IP_);
	memset(memory + 100, 0xee, 3000);
	add();
	/* Another processor adds meanwhile. */
	atomic_inc(&number);
	put_off();
	guardrail_unwind(ONE);
}

static noinline void returns(void)
{
	stores(MANY);
	put_off();
	EXPECT(!n_called);
}

static noinline void writes_too_much(void)
{
	stores(TOO_MANY);
	guardrail_unwind(ONE);
}

static noinline void cannot_be_undone(void)
{
	const struct guardrail_action action = { .domain = ONE, .function = "tested" };
	struct guardrail_call call = { };

	stores(1);
	guardrail_do_irrevocable(&action, &call);
	guardrail_unwind(ONE);
}

static noinline void waits(const void *p)
{
	const struct guardrail_action action = { .domain = ONE, .function = "tested", .pointer = { .kind = GUARDRAIL_VALUE_WORD } };
	struct guardrail_call call = { .args = { (unsigned long)p } };

	stores(1);
	guardrail_custom_transact_shared(&action, &call);
	guardrail_unwind(ONE);
}

static noinline void waits_in_its_frame(void)
{
	u64 place = 0;

	waits(&place);
}

static noinline void waits_elsewhere(void)
{
	waits(memory);
}

static DEFINE_SPINLOCK(lock);

static void note_lock(int (*noted)(const struct guardrail_action *action, struct guardrail_call *call))
{
	const struct guardrail_action action = { .domain = ONE, .function = "tested", .pointer = { .kind = GUARDRAIL_VALUE_WORD } };
	struct guardrail_call call = { .args = { (unsigned long)&lock } };

	noted(&action, &call);
}

static void take(void)
{
	spin_lock(&lock);
	note_lock(guardrail_custom_spin_taken);
}

static void release(void)
{
	note_lock(guardrail_custom_spin_given);
	spin_unlock(&lock);
}

/* Two turns with a lock, and stores to the same places in both. */
static noinline void takes_a_lock(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		take();
		stores(MANY / 10);
		store(8, 8, i);
		store(8, 8, i + 5);
		release();
	}
	guardrail_unwind(ONE);
}

/* Another processor has taken the lock meanwhile. */
static noinline void loses_a_store(void)
{
	take();
	store(8, 8, 1);
	store(16, 8, 1);
	release();
	memory[8] = 77;
	guardrail_unwind(ONE);
}

static unsigned long by_interrupt;

/* It enters the same domain, but is no part of what it interrupts. */
static void on_interrupt(struct irq_work *work)
{
	struct guardrail_record record;

	if (guardrail_enter(&other, &record))
		return;
	guardrail_write_slow((unsigned long)&by_interrupt, sizeof(by_interrupt), ONE, _THIS_IP_);
	by_interrupt++;
	guardrail_leave(&record);
}

static noinline void is_interrupted(void)
{
	static struct irq_work work;

	stores(1);
	init_irq_work(&work, on_interrupt);
	irq_work_queue(&work);
	irq_work_sync(&work);
	guardrail_unwind(ONE);
}

/* Runs the function in the entry that is chosen; true where it was ended. */
static bool run(void (*function)(void))
{
	struct guardrail_record record;
	int entered = guardrail_enter(&chosen, &record);

	if (!entered)
		function();
	guardrail_leave(&record);
	return entered == 1;
}

static bool is_as_before(void)
{
	return !memcmp(memory, before, SIZE);
}

static void undone(void)
{
	EXPECT(run(is_ended) && is_as_before() && !n_called);
	EXPECT(atomic_read(&number) == 6);
	EXPECT(run(is_interrupted) && is_as_before() && by_interrupt == 1);
	EXPECT(run(waits_in_its_frame) && is_as_before());
	EXPECT(run(takes_a_lock) && is_as_before());
	EXPECT(run(loses_a_store) && memory[8] == 77 && !memcmp(memory + 16, before + 16, 8));
	memcpy(memory, before, SIZE);
	EXPECT(!this_cpu_read(guardrail_transacting));
	test_result("a transaction that is ended has written nothing", true);
}

static void kept(void)
{
	EXPECT(!run(returns) && !is_as_before() && n_called == 1);
	memcpy(memory, before, SIZE);
	EXPECT(run(writes_too_much) && !is_as_before());
	memcpy(memory, before, SIZE);
	EXPECT(run(cannot_be_undone) && !is_as_before());
	memcpy(memory, before, SIZE);
	EXPECT(run(waits_elsewhere) && !is_as_before());
	memcpy(memory, before, SIZE);
	test_result("a transaction that returns, or cannot be undone, keeps what it wrote", true);
}

static noinline void stores_once(void)
{
	stores(1);
	guardrail_unwind(ONE);
}

/* Chooses as a user does. */
static bool choose(const char *choice)
{
	static char *environment[] = { "HOME=/", "PATH=/sbin:/bin:/usr/sbin:/usr/bin", NULL };
	char command[128], *arguments[] = { "/bin/sh", "-c", command, NULL };

	scnprintf(command, sizeof(command), "echo '%s' >/sys/kernel/debug/guardrail/transact", choice);
	return !call_usermodehelper(arguments[0], arguments, environment, UMH_WAIT_PROC);
}

/* Unloads the module and loads it again; true where a call of its entry is a transaction then. */
static bool loaded_again(void)
{
	bool is;

	guardrail_revoke_all(ONE);
	guardrail_module_leave(&module);
	EXPECT(!guardrail_module_enter(&module));
	EXPECT(!guardrail_grant_fresh(ONE, (unsigned long)memory, SIZE));
	EXPECT(run(stores_once));
	is = is_as_before();
	memcpy(memory, before, SIZE);
	return is;
}

/* The module selects its entry, and what a user has chosen counts more. */
static void chosen_again(void)
{
	EXPECT(choose("other always") && choose("transact_test:chosen off"));
	guardrail_kill(ONE);
	EXPECT(!loaded_again());
	guardrail_kill(ONE);
	EXPECT(!loaded_again());
	EXPECT(choose("chosen always"));
	guardrail_kill(ONE);
	EXPECT(loaded_again());
	/* No recovery loads it. */
	EXPECT(choose("chosen off") && loaded_again());
	EXPECT(!choose("chosen of") && !choose("neither off"));
	test_result("what is chosen stays where a dead module is loaded again", true);
}

void test_transact(void)
{
	memory = kmalloc(SIZE, GFP_KERNEL);
	before = kmalloc(SIZE, GFP_KERNEL);
	if (!EXPECT(memory && before && test_set_parameter("policy", "fail")))
		return;
	get_random_bytes(memory, SIZE);
	memcpy(before, memory, SIZE);
	EXPECT(!guardrail_module_enter(&module));
	EXPECT(!guardrail_grant_fresh(ONE, (unsigned long)memory, SIZE));
	EXPECT(!guardrail_grant_fresh(ONE, (unsigned long)&number, sizeof(number)));
	EXPECT(!guardrail_grant_fresh(ONE, (unsigned long)&by_interrupt, sizeof(by_interrupt)));
	undone();
	kept();
	chosen_again();
	guardrail_revoke_all(ONE);
	guardrail_module_leave(&module);
	EXPECT(test_set_parameter("policy", "log"));
	kfree(memory);
	kfree(before);
}
