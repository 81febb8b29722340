// SPDX-License-Identifier: GPL-2.0-or-later
/* Pointers that a domain may pass to the kernel and call: what it has received, and what that leads to. */
#include "test.h"

/**
 * struct thing - An object of the kernel.
 * @lock: Something in its middle.
 * @function: A function that it names.
 * @next: Another object.
 */
struct thing {
	u64 before[4];
	u64 lock;
	void (*function)(void);
	struct thing *next;
};

/* Each leads to the next; nothing leads to the last. */
static struct thing *things[5];
static u64 *own;
static bool all_met;

static const struct guardrail_action action = {
	.kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "test", .pointer = { .kind = GUARDRAIL_VALUE_WORD },
};

/* True where the pointer may be passed. */
static bool may_pass(int (*custom)(const struct guardrail_action *action, struct guardrail_call *call), const void *p)
{
	struct guardrail_call call = { .args = { (unsigned long)p } };
	unsigned long before = guardrail_violations(ONE);

	custom(&action, &call);
	return guardrail_violations(ONE) == before;
}

static void pass(int (*custom)(const struct guardrail_action *action, struct guardrail_call *call), const void *p)
{
	struct guardrail_call call = { .args = { (unsigned long)p } };

	custom(&action, &call);
}

#define MAY(p) may_pass(guardrail_custom_require_ref, p)
#define MAY_KERNELS(p) may_pass(guardrail_custom_require_kernels, p)

/* An entry with one argument: while it lasts, and when it is over. */
static bool entered(u32 pointers, u32 kept, bool inside, bool after)
{
	const struct guardrail_entry entry = { .domain = ONE, .function = "test", .pointers = pointers, .kept = kept };
	struct guardrail_record record = { .call = { .args = { 0, (unsigned long)things[3] } } };
	bool met;

	if (guardrail_enter(&entry, &record))
		return false;
	met = MAY(&things[3]->lock) == inside;
	guardrail_leave(&record);
	met &= MAY(&things[3]->lock) == after;
	pass(guardrail_custom_revoke_ref, things[3]);
	return met;
}

static bool received(void)
{
	bool met = EXPECT(!MAY(&things[0]->lock) && !MAY(things[1]));

	pass(guardrail_custom_grant_ref, &things[0]->before[1]);
	met &= EXPECT(MAY(&things[0]->lock) && MAY_KERNELS(&things[0]->lock));
	met &= EXPECT(MAY(things[1]) && MAY(&things[2]->lock));
	/* Further than two pointers it is not followed, and not backwards. */
	met &= EXPECT(!MAY(things[3]) && !MAY(things[4]));
	met &= EXPECT(guardrail_check_call(ONE, (unsigned long)_printk));
	met &= EXPECT(!guardrail_check_call(ONE, (unsigned long)dump_stack));
	pass(guardrail_custom_revoke_ref, things[0]);
	return met & EXPECT(!MAY(&things[0]->lock));
}

/* What the domain can write leads nowhere. */
static bool forged(void)
{
	bool met;

	own[1] = (unsigned long)things[4];
	pass(guardrail_custom_grant_ref, own);
	met = EXPECT(!MAY(things[4]));
	pass(guardrail_custom_revoke_ref, own);
	met &= EXPECT(!guardrail_grant(ONE, (unsigned long)things[1], sizeof(*things[1])));
	pass(guardrail_custom_grant_ref, things[1]);
	met &= EXPECT(MAY(things[1]) && !MAY(things[2]));
	pass(guardrail_custom_revoke_ref, things[1]);
	return met & EXPECT(!guardrail_revoke(ONE, (unsigned long)things[1], sizeof(*things[1])));
}

static int guarded_init(void)
{
	u64 variable;

	all_met = EXPECT(!guardrail_grant(ONE, (unsigned long)own, 64)) & received() & forged();
	/* Own memory, for what may lie there. */
	all_met &= EXPECT(MAY(&own[2]) && MAY(&variable) && MAY(NULL) && MAY(ERR_PTR(-EIO)));
	all_met &= EXPECT(!MAY_KERNELS(&own[2]) && MAY_KERNELS(current));
	/* No memory at all, and user space. */
	all_met &= EXPECT(!MAY((void *)0xffffff1000000000UL) && !MAY((void *)0x7fffdead00000000UL) && !MAY((void *)0x400000UL));
	all_met &= EXPECT(entered(0, 0, false, false) && entered(2, 0, true, false) && entered(2, 2, true, true));
	guardrail_revoke(ONE, (unsigned long)own, 64);
	return 0;
}

static const struct guardrail_module guarded = {
	.magic = GUARDRAIL_MAGIC,
	.abi = GUARDRAIL_ABI,
	.domain = ONE,
	.name = "reach_test",
	.init = guarded_init,
};

void test_reach(void)
{
	int i;

	own = kzalloc(64, GFP_KERNEL);
	if (!EXPECT(own))
		return;
	for (i = 0; i < ARRAY_SIZE(things); i++) {
		things[i] = kzalloc(sizeof(*things[i]), GFP_KERNEL);
		if (!EXPECT(things[i]))
			return;
		things[i]->function = (void (*)(void))_printk;
		if (i && i < 4)
			things[i - 1]->next = things[i];
	}
	EXPECT(!guardrail_module_enter(&guarded));
	guardrail_module_leave(&guarded);
	for (i = 0; i < ARRAY_SIZE(things); i++)
		kfree(things[i]);
	kfree(own);
	test_result("pointers that were received", all_met);
}
