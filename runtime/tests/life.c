// SPDX-License-Identifier: GPL-2.0-or-later
/* Guarded modules that are loaded and unloaded; this module plays their part. */
#include "test.h"

#define CYCLES 1000

static u8 data[300] __aligned(8);
static u8 init_data[50] __aligned(4);
static int wanted_result;
static bool seen_init, seen_exit;
static unsigned long leaked;

static noinline void target(void)
{
	barrier();
}

static noinline void other(void)
{
	barrier();
}

/* The type of functions by which target() is to be called. */
#define TYPE 7

/* True where nothing is reported of a function that is handed over as one of a type. */
static bool may_hand_over(void *function, u32 type)
{
	const struct guardrail_action action = {
		.domain = ONE, .function = "tested", .type = type, .pointer = { .kind = GUARDRAIL_VALUE_WORD, .word = 0 },
	};
	struct guardrail_call call = { .args = { (unsigned long)function } };
	unsigned long before = guardrail_violations(ONE);

	return !guardrail_do_require_call(&action, &call) && guardrail_violations(ONE) == before;
}

static int guarded_init(void)
{
	seen_init = guardrail_check_write(ONE, (unsigned long)data, sizeof(data)) &&
		    guardrail_check_write(ONE, (unsigned long)init_data, sizeof(init_data)) &&
		    !guardrail_check_write(ONE, (unsigned long)&wanted_result, sizeof(wanted_result)) &&
		    guardrail_check_call(ONE, (unsigned long)target) &&
		    !guardrail_check_call(ONE, (unsigned long)other) &&
		    may_hand_over(target, TYPE) && !may_hand_over(target, TYPE + 1) && !may_hand_over(target, 0) &&
		    may_hand_over(_printk, TYPE + 1) && !may_hand_over(other, TYPE) &&
		    guardrail_check_call(ONE, (unsigned long)_printk) &&
		    !guardrail_check_call(ONE, (unsigned long)_printk + 1) &&
		    guardrail_call_slow((unsigned long)_printk, ONE, _THIS_IP_) == (unsigned long)other;
	if (leaked) {
		guardrail_grant_fresh(ONE, leaked, 48);
		guardrail_create_object(ONE, leaked, 16, 5);
		guardrail_own(ONE, leaked, 48, 6);
	}
	return wanted_result;
}

static void guarded_exit(void)
{
	seen_exit = guardrail_check_write(ONE, (unsigned long)data, sizeof(data)) &&
		    !guardrail_check_write(ONE, (unsigned long)init_data, 1);
}

static const struct guardrail_range writable[] = {
	{ (unsigned long)data, sizeof(data) },
	{ (unsigned long)data, 0 },
};
static const struct guardrail_range init_only[] = { { (unsigned long)init_data, sizeof(init_data) } };
static const struct guardrail_own_function targets[] = { { .function = (unsigned long)target, .type = TYPE } };
/* Calls of _printk() by pointer lead to another function, as they do to a thunk. */
static const struct guardrail_import imports[] = {
	{ .function = (unsigned long)_printk, .call = (unsigned long)other },
};

static const struct guardrail_module guarded = {
	.magic = GUARDRAIL_MAGIC,
	.abi = GUARDRAIL_ABI,
	.domain = ONE,
	.name = "guarded_test",
	.init = guarded_init,
	.exit = guarded_exit,
	.writable = writable,
	.n_writable = ARRAY_SIZE(writable),
	.init_only = init_only,
	.n_init_only = ARRAY_SIZE(init_only),
	.targets = targets,
	.n_targets = ARRAY_SIZE(targets),
	.imports = imports,
	.n_imports = ARRAY_SIZE(imports),
};

/* Nothing of the domain is left. */
static int none(const struct guardrail_held *held, void *unused)
{
	return 1;
}

static bool holds_nothing(void)
{
	struct guardrail_usage usage;

	guardrail_usage(&usage);
	return !guardrail_walk(ONE, none, NULL) && !usage.conflicts && !usage.records;
}

static void comes_and_goes(void)
{
	seen_init = seen_exit = false;
	EXPECT(!guardrail_module_enter(&guarded));
	EXPECT(seen_init);
	EXPECT(guardrail_check_write(ONE, (unsigned long)data, sizeof(data)));
	EXPECT(!guardrail_check_write(ONE, (unsigned long)data + sizeof(data), 1));
	EXPECT(!guardrail_check_write(ONE, (unsigned long)init_data, 1));
	guardrail_module_leave(&guarded);
	EXPECT(seen_exit);
	EXPECT(holds_nothing());
	/* A second leave has no effect. */
	seen_exit = false;
	guardrail_module_leave(&guarded);
	EXPECT(!seen_exit);
	test_result("a guarded module comes and goes", true);
}

static void fails(void)
{
	wanted_result = -ENODEV;
	seen_exit = false;
	EXPECT(guardrail_module_enter(&guarded) == -ENODEV);
	EXPECT(!seen_exit && holds_nothing());
	wanted_result = 0;
	test_result("a guarded module whose init fails", true);
}

static void leaks(void)
{
	leaked = (unsigned long)kmalloc(64, GFP_KERNEL);
	if (!EXPECT(leaked))
		return;
	EXPECT(!guardrail_module_enter(&guarded));
	guardrail_module_leave(&guarded);
	EXPECT(holds_nothing());
	kfree((void *)leaked);
	leaked = 0;
	test_result("a guarded module that leaks", true);
}

static void refused(void)
{
	struct guardrail_module bad = guarded;

	bad.magic++;
	EXPECT(guardrail_module_enter(&bad) == -ENOEXEC);
	bad = guarded;
	bad.abi++;
	EXPECT(guardrail_module_enter(&bad) == -ENOEXEC);
	bad = guarded;
	bad.domain = 16;
	EXPECT(guardrail_module_enter(&bad) == -ENOEXEC);
	bad = guarded;
	bad.flags = 1;
	EXPECT(guardrail_module_enter(&bad) == -ENOEXEC);
	/* A module's description must be in the module, not on a stack. */
	bad = guarded;
	EXPECT(guardrail_module_enter(&bad) == -ENOEXEC);
	EXPECT(holds_nothing());
	test_result("modules that are refused", true);
}

/* Two modules of one domain: the rights that one leaves behind end with the last. */
static void share(void)
{
	static u8 more[16] __aligned(8);
	static const struct guardrail_range range[] = { { (unsigned long)more, sizeof(more) } };
	static const struct guardrail_module second = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "second_test",
		.writable = range, .n_writable = 1,
	};

	EXPECT(!guardrail_module_enter(&guarded) && !guardrail_module_enter(&second));
	guardrail_module_leave(&guarded);
	EXPECT(guardrail_check_write(ONE, (unsigned long)more, sizeof(more)));
	EXPECT(!guardrail_check_write(ONE, (unsigned long)data, 1));
	EXPECT(!guardrail_check_call(ONE, (unsigned long)target));
	guardrail_module_leave(&second);
	EXPECT(holds_nothing());
	test_result("two modules of one domain", true);
}

static void often(void)
{
	struct guardrail_usage before, after;
	int i;

	guardrail_usage(&before);
	for (i = 0; i < CYCLES; i++) {
		if (!EXPECT(!guardrail_module_enter(&guarded)))
			break;
		guardrail_module_leave(&guarded);
		cond_resched();
	}
	guardrail_usage(&after);
	EXPECT(before.table_pages == after.table_pages && before.tree_pages == after.tree_pages);
	EXPECT(!after.conflicts && !after.records);
	test_result("a thousand times", true);
}

static struct timer_list timer;
static volatile bool went_on;
static const struct guardrail_entry entry = { .domain = ONE, .function = "tested" };

static void expires(struct timer_list *unused)
{
}

/* Like a driver's timer, it is found by its type. */
static void takes_timer(void)
{
	timer_setup(&timer, expires, 0);
	mod_timer(&timer, jiffies + 3600 * HZ);
	guardrail_create_object(ONE, (unsigned long)&timer, sizeof(timer), 1 << 10);
}

static int init_takes(void)
{
	takes_timer();
	return 0;
}

static int init_is_ended(void)
{
	takes_timer();
	guardrail_unwind(ONE);
	went_on = true;
	return 0;
}

static void exit_is_ended(void)
{
	guardrail_unwind(ONE);
	went_on = true;
	timer_delete_sync(&timer);
	guardrail_destroy_object(ONE, (unsigned long)&timer, 1 << 10);
}

static noinline void entry_is_ended(void)
{
	struct guardrail_record record;

	if (guardrail_enter(&entry, &record) == 0)
		guardrail_unwind(ONE);
	guardrail_leave(&record);
}

/* The rights are revoked without the functions that were ended. */
static void ended(void)
{
	static const struct guardrail_module by_init = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "init_test", .init = init_is_ended,
	}, by_exit = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "exit_test", .init = init_takes, .exit = exit_is_ended,
	}, within = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "within_test", .init = init_takes,
	};

	EXPECT(test_set_parameter("policy", "fail"));
	EXPECT(guardrail_module_enter(&by_init) == -EFAULT && !timer_pending(&timer) && holds_nothing());
	EXPECT(!guardrail_module_enter(&by_exit) && timer_pending(&timer));
	guardrail_module_leave(&by_exit);
	EXPECT(!timer_pending(&timer) && holds_nothing());
	EXPECT(!guardrail_module_enter(&within));
	entry_is_ended();
	EXPECT(timer_pending(&timer));
	guardrail_module_leave(&within);
	EXPECT(!timer_pending(&timer) && holds_nothing() && !went_on);
	EXPECT(test_set_parameter("policy", "log"));
	/* Where the exit function has to do all of its work, no violation ends it. */
	EXPECT(!guardrail_module_enter(&by_exit));
	guardrail_module_leave(&by_exit);
	EXPECT(went_on && !timer_pending(&timer) && holds_nothing());
	test_result("functions of a module's life that are ended", true);
}

#define MOST 8
static unsigned long undone[MOST][2];
static unsigned int n_undone;
void test_undo(unsigned long first, unsigned long second);

/* What undoes the registrations below; it is found by its name. */
void test_undo(unsigned long first, unsigned long second)
{
	if (n_undone < MOST) {
		undone[n_undone][0] = first;
		undone[n_undone++][1] = second;
	}
}

/* Registers as a thunk does after its call, or undoes a registration. */
static void registers(int (*act)(const struct guardrail_action *action, struct guardrail_call *call), long first, long second)
{
	const struct guardrail_action action = {
		.domain = ONE, .type = 2, .from = 3, .pointer.constant = first, .size.constant = second, .function = "registers",
		.inverse = "test_undo",
	};
	struct guardrail_call call = { };

	act(&action, &call);
}

static int init_registers(void)
{
	registers(guardrail_do_registers, 1, 0);
	registers(guardrail_do_registers, 2, 1);
	registers(guardrail_do_registers, 3, 2);
	registers(guardrail_do_registers, 4, 9);
	registers(guardrail_do_registers, 4, 8);
	registers(guardrail_do_registers, 5, 0);
	registers(guardrail_do_registers, 6, 5);
	registers(guardrail_do_registers, 7, 6);
	/* With the folder 5, what is in it and below. One of two that differ in one value only. */
	registers(guardrail_do_unregisters, 5, 0);
	registers(guardrail_do_unregisters, 4, 9);
	registers(guardrail_do_unregisters, 4, 7);
	return 0;
}

/* The latest registration is undone first, and none that the module has undone itself. */
static void undoes(void)
{
	static const unsigned long wanted[][2] = { { 4, 8 }, { 3, 2 }, { 2, 1 }, { 1, 0 } };
	static const struct guardrail_module within = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "undo_test", .init = init_registers,
	};

	EXPECT(test_set_parameter("policy", "fail"));
	EXPECT(!guardrail_module_enter(&within));
	entry_is_ended();
	EXPECT(!n_undone);
	guardrail_module_leave(&within);
	EXPECT(n_undone == ARRAY_SIZE(wanted) && !memcmp(undone, wanted, sizeof(wanted)));
	EXPECT(test_set_parameter("policy", "log"));
	/* Where the domain lives, what it has left is only reported. */
	n_undone = 0;
	EXPECT(!guardrail_module_enter(&within));
	guardrail_module_leave(&within);
	EXPECT(!n_undone && holds_nothing());
	test_result("registrations that are undone", true);
}

void test_life(void)
{
	undoes();
	comes_and_goes();
	fails();
	leaks();
	refused();
	share();
	ended();
	often();
}
