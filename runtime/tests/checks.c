// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Checks as guarded code makes them: inline, through the exception table, and by the slow paths;
 * and the reports of those.
 */
#include <linux/irq_work.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/vmalloc.h>

#include "test.h"

static void inline_checks(void)
{
	u8 wanted = GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE);
	unsigned long p = (unsigned long)kzalloc(64, GFP_KERNEL);

	if (!EXPECT(p))
		return;
	EXPECT(!inline_check(p, wanted));
	EXPECT(!guardrail_grant_fresh(ONE, p, 64));
	EXPECT(inline_check(p, wanted) && inline_check(p + 63, wanted));
	EXPECT(!inline_check(p, GUARDRAIL_TAG(TWO, GUARDRAIL_WRITE)));
	EXPECT(!guardrail_revoke(ONE, p, 64));
	EXPECT(!inline_check(p, wanted));
	kfree((void *)p);
	test_result("inline checks", true);
}

/* Addresses where the table has no memory, and where there can be no tag. */
static void faults(void)
{
	u8 wanted = GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE);
	struct guardrail_usage before, after;

	guardrail_usage(&before);
	/* The hole at the beginning of the kernel's half, user addresses, and NULL. */
	EXPECT(!inline_check(~((1UL << 47) - 1) + (1UL << 42), wanted));
	EXPECT(!inline_check(0, wanted));
	EXPECT(!inline_check(0x7ffffff0000UL, wanted));
	EXPECT(!inline_check(1UL << 62, wanted));
	EXPECT(!guardrail_check_write(ONE, ~((1UL << 47) - 1) + (1UL << 42), 64));
	EXPECT(!guardrail_revoke(ONE, ~((1UL << 47) - 1) + (1UL << 42), 1 << 20));
	EXPECT(!guardrail_find_object(ONE, ~((1UL << 47) - 1) + (1UL << 42), 1 << 20));
	guardrail_usage(&after);
	/* A check populates nothing. */
	EXPECT(before.table_pages == after.table_pages && before.tree_pages == after.tree_pages);
	test_result("parts of the table without memory", true);
}

static void stores(void)
{
	unsigned long p = (unsigned long)kzalloc(256, GFP_KERNEL), size;

	if (!EXPECT(p))
		return;
	EXPECT(!guardrail_grant_fresh(ONE, p + 64, 64));
	for (size = 1; size <= 64; size *= 2)
		EXPECT(test_store(p + 64, size, ONE));
	/* Stores over the border of two slots, and up to the last byte. */
	EXPECT(test_store(p + 69, 8, ONE) && test_store(p + 120, 8, ONE));
	EXPECT(!test_store(p + 121, 8, ONE) && !test_store(p + 60, 8, ONE) && !test_store(p + 65, 64, ONE));
	EXPECT(!test_store(p + 64, 8, TWO));
	/* Halves and bytes pass only the slow path. */
	EXPECT(!guardrail_grant_fresh(ONE, p + 128, 4) && !guardrail_grant_fresh(ONE, p + 141, 1));
	EXPECT(!inline_check(p + 128, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)));
	EXPECT(test_store(p + 128, 4, ONE) && test_store(p + 124, 8, ONE) && !test_store(p + 130, 4, ONE));
	EXPECT(test_store(p + 141, 1, ONE) && !test_store(p + 140, 2, ONE) && !test_store(p + 142, 1, ONE));
	/* A buffer of the size of a slot lies in two; the bytes behind it are in the second. */
	EXPECT(!guardrail_grant_fresh(ONE, p + 196, 8));
	EXPECT(test_store(p + 196, 8, ONE) && !test_store(p + 204, 4, ONE) && !test_store(p + 192, 4, ONE));
	EXPECT(!guardrail_revoke(ONE, p, 256));
	kfree((void *)p);
	test_result("stores", true);
}

static bool range_allowed(unsigned long p, unsigned long n)
{
	unsigned long before = guardrail_violations(ONE);

	guardrail_range_slow(p, n, ONE, _THIS_IP_);
	return guardrail_violations(ONE) == before;
}

static void ranges(void)
{
	/* The table's page ends within. */
	unsigned long n = 100 << 10, p = (unsigned long)vmalloc(n);

	if (!EXPECT(p))
		return;
	EXPECT(!guardrail_grant_fresh(ONE, p + 3, n - 5));
	EXPECT(range_allowed(p + 3, n - 5) && range_allowed(p + 3, 1) && range_allowed(p, 0));
	EXPECT(!range_allowed(p + 2, n - 5) && !range_allowed(p + 3, n - 4));
	EXPECT(!guardrail_revoke(ONE, p + 40001, 1));
	EXPECT(!range_allowed(p + 3, n - 5) && range_allowed(p + 3, 40001 - 3) && range_allowed(p + 40002, 8));
	EXPECT(!range_allowed(p + 3, ~0UL));
	EXPECT(!guardrail_revoke(ONE, p, n));
	vfree((void *)p);
	test_result("ranges", true);
}

static bool stack_in_interrupt;

static void on_interrupt(struct irq_work *work)
{
	unsigned long here[4] = { 0 };

	OPTIMIZER_HIDE_VAR(here[0]);
	stack_in_interrupt = test_store((unsigned long)&here[1], 8, ONE) &&
			     /* The stack of the interrupted task is not the current one. */
			     !test_store((unsigned long)task_stack_page(current) + 64, 8, ONE);
}

static noinline unsigned long stack_below(void)
{
	return (unsigned long)__builtin_frame_address(0) - 1024;
}

/* Where the address lies that the function returns to which this is a variable of. */
#define RETURNS_BY ((unsigned long)__builtin_frame_address(0) + 8)

static noinline bool may_write_callers(unsigned long returns_by)
{
	return test_store(returns_by, 8, ONE);
}

/* Return addresses of this function and of its callers, by stores of all kinds that touch them. */
static noinline void return_addresses(void)
{
	unsigned long here[4] = { 0 }, at = RETURNS_BY;

	OPTIMIZER_HIDE_VAR(here[0]);
	EXPECT(test_store((unsigned long)here, 8, ONE) && may_write_callers((unsigned long)&here[1]));
	EXPECT(range_allowed((unsigned long)here, sizeof(here)));
	EXPECT(!test_store(at, 8, ONE) && !test_store(at + 7, 1, ONE) && !test_store(at - 7, 8, ONE) && !test_store(at + 4, 8, ONE));
	EXPECT(!may_write_callers(at));
	EXPECT(!range_allowed((unsigned long)here, at + 1 - (unsigned long)here));
	test_result("stores to return addresses", true);
}

/* Where a store goes, by the distance from here. */
#define DISTANCES 32

/* The stack pointer makes no frame of a kind that is not remembered, as the frame's address would. */
static noinline bool may_write_above(unsigned long distance)
{
	bool may = test_store(current_stack_pointer + distance, 8, ONE);

	barrier();
	return may;
}

static noinline u32 may_write_large(unsigned long depth)
{
	unsigned long here[16] = { 0 }, distance;
	u32 may = 0;

	OPTIMIZER_HIDE_VAR(here[depth % 16]);
	if (depth)
		may = may_write_large(depth - 1);
	else
		for (distance = 0; distance < DISTANCES; distance++)
			may |= (u32)may_write_above(distance * sizeof(long)) << distance;
	barrier();
	return may;
}

static noinline u32 may_write_small(void)
{
	unsigned long distance;
	u32 may = 0;

	for (distance = 0; distance < DISTANCES; distance++)
		may |= (u32)may_write_above(distance * sizeof(long)) << distance;
	barrier();
	return may;
}

/* What was allowed to one caller says nothing of the same place in the frames of another. */
static noinline void remembered_walks(void)
{
	u32 small = may_write_small(), large = may_write_large(0);

	/* A place that is a variable of one, and where the other returns by. */
	EXPECT(large & ~small);
	EXPECT(may_write_large(0) == large && may_write_small() == small);
	/* The same frames elsewhere on the stack, above those of other callers. */
	EXPECT(may_write_large(1) == may_write_large(2) && may_write_large(3) == may_write_large(2));
	EXPECT(may_write_large(0) == large && may_write_small() == small);
	test_result("walks of the stack that are remembered", true);
}

/* Bytes that hold all of the function below. */
#define SHORT 128

/* Its caller's RBP lies at the frame's address. */
static noinline bool may_write_saved(void)
{
	bool may = test_store((unsigned long)__builtin_frame_address(0), 8, ONE);

	/* The call must not be the last deed: it would take the place of this frame. */
	barrier();
	return may;
}

/* Registers that a function of a guarded module has saved, as the module's description says where. */
static void saved_registers(void)
{
	static const struct { u32 words; bool may; } cases[] = {
		{ 0, true }, { 1, false }, { 6, true }, { GUARDRAIL_SPILL_BY_RBP | 1, false }, { GUARDRAIL_SPILL_BY_RBP | 2, true },
		{ GUARDRAIL_SPILL_BY_RBP | GUARDRAIL_SPILL_TOP | 4, false },
	};
	static struct guardrail_spill spills[] = { { 0 }, { SHORT - 1 } };
	static struct guardrail_text text = { .len = SHORT, .spills = spills, .n_spills = ARRAY_SIZE(spills) };
	static struct guardrail_module guarded = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "saved", .texts = &text, .n_texts = 1,
	};
	int i;

	EXPECT(may_write_saved());
	text.end = (unsigned long)may_write_saved + SHORT;
	if (!EXPECT(!guardrail_module_enter(&guarded)))
		return;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		spills[0].words = cases[i].words;
		if (!EXPECT(may_write_saved() == cases[i].may))
			pr_info("# words %x\n", cases[i].words);
	}
	/* Of the frames of thunks, nothing may be written. */
	spills[0].words = 0;
	text.spills = NULL;
	EXPECT(!may_write_saved());
	guardrail_module_leave(&guarded);
	EXPECT(may_write_saved());
	test_result("stores to saved registers", true);
}

static void stacks(void)
{
	static struct irq_work work;
	unsigned long here[4] = { 0 };

	OPTIMIZER_HIDE_VAR(here[0]);
	EXPECT(test_store((unsigned long)&here[1], 8, ONE));
	EXPECT(test_store((unsigned long)__builtin_frame_address(0), 8, ONE));
	/* Below what is in use, beyond the end, and at what user space's registers are kept in. */
	EXPECT(!test_store(stack_below(), 8, ONE));
	EXPECT(!test_store((unsigned long)task_pt_regs(current), 8, ONE));
	EXPECT(!test_store((unsigned long)task_pt_regs(current) - 4, 8, ONE));
	EXPECT(!test_store((unsigned long)task_stack_page(current), 8, ONE));
	init_irq_work(&work, on_interrupt);
	irq_work_queue(&work);
	irq_work_sync(&work);
	EXPECT(stack_in_interrupt);
	test_result("stores to the stack", true);
}

static noinline void plain_function(void)
{
	barrier();
}

static bool call_allowed(unsigned long target)
{
	unsigned long before = guardrail_violations(ONE);

	guardrail_call_slow(target, ONE, _THIS_IP_);
	return guardrail_violations(ONE) == before;
}

static void calls(void)
{
	static unsigned long data;

	EXPECT(!guardrail_grant_call(ONE, (unsigned long)plain_function));
	EXPECT(call_allowed((unsigned long)plain_function) && !call_allowed((unsigned long)plain_function + 1));
	EXPECT(!guardrail_revoke(ONE, (unsigned long)plain_function, 1) && !call_allowed((unsigned long)plain_function));
	EXPECT(!call_allowed((unsigned long)_printk) && !call_allowed((unsigned long)_printk + 4));
	EXPECT(!call_allowed((unsigned long)&data) && !call_allowed(0) && !call_allowed(0x400000));
	test_result("indirect calls", true);
}

/* Each kind of target, once; the reports are checked from outside. */
static noinline void report(void)
{
	static unsigned long data;
	unsigned long p = (unsigned long)kmalloc(100, GFP_KERNEL), v = (unsigned long)vmalloc(PAGE_SIZE);
	unsigned long before = guardrail_violations(ONE);
	int i;

	if (!EXPECT(p && v))
		return;
	/* One site is reported once, and counted. */
	for (i = 0; i < 5; i++)
		guardrail_write_slow(p + 16, 8, ONE, (unsigned long)report + 1);
	guardrail_write_slow(v + 8, 4, ONE, (unsigned long)report + 2);
	guardrail_write_slow((unsigned long)&data, 4, ONE, (unsigned long)report + 3);
	guardrail_write_slow(0x1234, 4, ONE, (unsigned long)report + 4);
	EXPECT(!guardrail_grant_fresh(TWO, p, 8));
	guardrail_write_slow(p, 8, ONE, (unsigned long)report + 5);
	EXPECT(!guardrail_revoke(TWO, p, 8));
	EXPECT(guardrail_violations(ONE) == before + 9);
	vfree((void *)v);
	kfree((void *)p);
	test_result("reports", true);
}

void test_checks(void)
{
	inline_checks();
	faults();
	stores();
	ranges();
	stacks();
	return_addresses();
	remembered_walks();
	saved_registers();
	calls();
	report();
}
