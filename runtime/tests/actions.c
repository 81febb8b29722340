// SPDX-License-Identifier: GPL-2.0-or-later
/* Actions of wrappers, with call registers and actions in the form of a guarded module's. */
#include <linux/err.h>
#include <linux/platform_device.h>
#include <linux/skbuff.h>

#include "test.h"

#define KIND 7
#define TYPE 9

/* Call registers with room for two arguments on the stack. */
struct long_call {
	struct guardrail_call call;
	unsigned long stack[2];
};

static const struct guardrail_value nothing = { .kind = GUARDRAIL_VALUE_CONST };
#define WORD(n) ((struct guardrail_value){ .kind = GUARDRAIL_VALUE_WORD, .word = (n) })
#define CONST(n) ((struct guardrail_value){ .kind = GUARDRAIL_VALUE_CONST, .constant = (n) })
#define TERMS(list) ((struct guardrail_value){ .kind = GUARDRAIL_VALUE_TERMS, .n_terms = ARRAY_SIZE(list), .terms = (list) })
#define ACTION(...) ((struct guardrail_action){ .domain = ONE, .function = "tested", .from = GUARDRAIL_ANY_STATE, __VA_ARGS__ })

/* True where the action caused no violation. */
static bool quiet(int (*handler)(const struct guardrail_action *, struct guardrail_call *), struct guardrail_action action,
		  struct long_call *call)
{
	unsigned long before = guardrail_violations(ONE);

	return !handler(&action, &call->call) && guardrail_violations(ONE) == before;
}

static unsigned long value(struct guardrail_value value, struct long_call *call)
{
	unsigned long result;

	return guardrail_value(&value, &call->call, &result) ? result : 0xdead;
}

static void values(void)
{
	struct { u8 first; u8 second; u16 third; u32 fourth; u64 fifth; struct long_call *self; } data = { 1, 0xfe, 0xfffd, 0xfffffffc, ~4UL };
	struct long_call call = { .call = { .args = { (unsigned long)&data, 0xffffffff00000003, 5, 0x1234, 0, 0 }, .result = 77 },
			     .stack = { 88, 99 } };
	const struct guardrail_term product[] = {
		{ GUARDRAIL_TERM_WORD, 1 }, { GUARDRAIL_TERM_LOW, 4 }, { GUARDRAIL_TERM_WORD, 2 }, { GUARDRAIL_TERM_MUL },
		{ GUARDRAIL_TERM_CONST, 0, {}, -1 }, { GUARDRAIL_TERM_ADD }, { GUARDRAIL_TERM_CONST, 0, {}, 4 }, { GUARDRAIL_TERM_SHL },
	};
	const struct guardrail_term twice[] = {
		{ GUARDRAIL_TERM_WORD, 0 }, { GUARDRAIL_TERM_LOAD, 8, {}, 16 }, { GUARDRAIL_TERM_LOAD, 8, {}, 8 },
	};
	const struct guardrail_term user[] = { { GUARDRAIL_TERM_WORD, 3 }, { GUARDRAIL_TERM_LOAD, 8 } };
	const struct guardrail_term hole[] = { { GUARDRAIL_TERM_CONST, 0, {}, ~((1L << 47) - 1) + (1L << 42) }, { GUARDRAIL_TERM_LOAD, 1 } };
	const struct guardrail_term shift[] = { { GUARDRAIL_TERM_WORD, 2 }, { GUARDRAIL_TERM_CONST, 0, {}, 64 }, { GUARDRAIL_TERM_SHL } };
	struct guardrail_term deep[GUARDRAIL_MAX_DEPTH + 1] = { };
	struct guardrail_term one[] = { { GUARDRAIL_TERM_WORD, 0 }, { GUARDRAIL_TERM_LOAD, 1 } };

	data.self = &call;
	EXPECT(value(WORD(2), &call) == 5 && value(WORD(GUARDRAIL_WORD_RESULT), &call) == 77);
	EXPECT(value(WORD(GUARDRAIL_WORD_STACK), &call) == 88 && value(WORD(GUARDRAIL_WORD_STACK + 1), &call) == 99);
	EXPECT(value(CONST(-3), &call) == -3UL);
	EXPECT(value((struct guardrail_value){ .kind = GUARDRAIL_VALUE_HALF, .word = 1 }, &call) == 3);
	EXPECT(value(TERMS(product), &call) == (3 * 5 - 1) << 4);
	EXPECT(value(TERMS(twice), &call) == 0xffffffff00000003);
	EXPECT(value(TERMS(one), &call) == 1);
	one[1].operand = 1;
	EXPECT(value(TERMS(one), &call) == 0xfe);
	one[1] = (struct guardrail_term){ GUARDRAIL_TERM_LOAD, 2, {}, 2 };
	EXPECT(value(TERMS(one), &call) == 0xfffd);
	one[1] = (struct guardrail_term){ GUARDRAIL_TERM_LOAD, 4, {}, 4 };
	EXPECT(value(TERMS(one), &call) == 0xfffffffc);
	EXPECT(value(TERMS(shift), &call) == 0);
	/* Values that cannot be read, and values that the rewriter does not make. */
	EXPECT(value(TERMS(user), &call) == 0xdead && value(TERMS(hole), &call) == 0xdead);
	EXPECT(value(TERMS(deep), &call) == 0xdead);
	test_result("values", true);
}

static void conditions(void)
{
	static const unsigned long results[] = { 0, 1, 0x100, 0xffffffff, 0x100000000, -EINVAL, 0xffff888000000000 };
	/* A bit for each result. */
	static const struct { u8 when; u8 holds; } cases[] = {
		{ GUARDRAIL_ALWAYS, 0x7f }, { GUARDRAIL_RESULT_VALID, 0x5e }, { GUARDRAIL_RESULT_ZERO, 0x51 },
		{ GUARDRAIL_RESULT_NOT_NEGATIVE, 0x57 }, { GUARDRAIL_RESULT_TRUE, 0x2a }, { 99, 0 },
	};
	struct long_call call = { .call = { .args = { 0, 1 } } };
	int i, j;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct guardrail_action action = ACTION(.when = cases[i].when);

		for (j = 0; j < ARRAY_SIZE(results); j++) {
			call.call.result = results[j];
			if (!EXPECT(guardrail_applies(&action, &call.call) == (cases[i].holds >> j & 1)))
				pr_info("# condition %d, result %d\n", i, j);
		}
	}
	EXPECT(!guardrail_applies(&ACTION(.when = GUARDRAIL_NONZERO, .when_word = 0), &call.call));
	EXPECT(guardrail_applies(&ACTION(.when = GUARDRAIL_NONZERO, .when_word = 1), &call.call));
	test_result("conditions of actions", true);
}

int guardrail_custom_guarded_slab(const struct guardrail_action *action, struct guardrail_call *call);

/* Objects that fill their slots are allocated in wider ones, at the same multiples; others are left to the kernel. */
static void guards(void)
{
	static const struct { unsigned long size, wider; } cases[] = {
		{ 8, 16 }, { 64, 128 }, { 96, 128 }, { 128, 256 }, { 192, 256 }, { 2048, 4096 }, { 0, 0 }, { 65, 0 }, { 100, 0 }, { 4096, 0 },
		{ ~0UL, 0 }, { 1UL << 63, 0 },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct guardrail_action action = ACTION(.pointer = WORD(0), .size = WORD(1));
		struct guardrail_call call = { .args = { cases[i].size, GFP_KERNEL } };

		if (!EXPECT(guardrail_custom_guarded_slab(&action, &call) == !!cases[i].wider) || !cases[i].wider)
			continue;
		EXPECT(call.result && ksize((void *)call.result) == cases[i].wider);
		EXPECT(!is_power_of_2(cases[i].size) || call.result % cases[i].size == 0);
		kfree((void *)call.result);
	}
	test_result("guards behind allocations", true);
}

/* An allocation as kmalloc() would be wrapped, used, and released by kfree(). */
static void allocation(void)
{
	unsigned long p = (unsigned long)kzalloc(128, GFP_KERNEL);
	struct long_call make = { .call = { .args = { 96 }, .result = p } }, release = { .call = { .args = { p } } };
	struct long_call use = { .call = { .args = { p + 32, 0, 64 } } };
	struct guardrail_action grant = ACTION(.when = GUARDRAIL_RESULT_VALID, .pointer = WORD(6), .size = WORD(0));
	struct guardrail_action own = grant, disown = ACTION(.type = KIND, .pointer = WORD(0));
	struct guardrail_action require = ACTION(.pointer = WORD(0), .size = WORD(2));

	if (!EXPECT(p))
		return;
	own.type = KIND;
	EXPECT(quiet(guardrail_do_grant, grant, &make) && quiet(guardrail_do_own, own, &make));
	EXPECT(guardrail_check_write(ONE, p, 96) && !guardrail_check_write(ONE, p + 96, 1));
	EXPECT(quiet(guardrail_do_require_write, require, &use));
	use.call.args[2] = 65;
	EXPECT(!quiet(guardrail_do_require_write, require, &use));
	/* The whole address space, user memory, nothing, NULL, and the stack. */
	use.call.args[2] = ~0UL;
	EXPECT(!quiet(guardrail_do_require_write, require, &use));
	use.call.args[0] = 0x400000;
	use.call.args[2] = 8;
	EXPECT(!quiet(guardrail_do_require_write, require, &use));
	use.call.args[2] = 0;
	EXPECT(quiet(guardrail_do_require_write, require, &use));
	use.call.args[0] = 0;
	use.call.args[2] = 8;
	EXPECT(quiet(guardrail_do_require_write, require, &use));
	use.call.args[0] = (unsigned long)use.stack;
	use.call.args[2] = sizeof(use.stack);
	EXPECT(quiet(guardrail_do_require_write, require, &use));
	/* What the thunk of the call keeps there is not the caller's. */
	use.call.args[0] -= 8;
	EXPECT(!quiet(guardrail_do_require_write, require, &use));
	/* By another function, in the middle, rightly, and twice. */
	disown.type++;
	EXPECT(!quiet(guardrail_do_disown, disown, &release));
	disown.type--;
	release.call.args[0] = p + 8;
	EXPECT(!quiet(guardrail_do_disown, disown, &release));
	release.call.args[0] = p;
	EXPECT(quiet(guardrail_do_disown, disown, &release));
	EXPECT(!guardrail_check_write(ONE, p, 1) && !guardrail_check_write(ONE, p + 95, 1));
	EXPECT(!quiet(guardrail_do_disown, disown, &release));
	/* NULL may be released any number of times; an allocation that failed grants nothing. */
	release.call.args[0] = 0;
	EXPECT(quiet(guardrail_do_disown, disown, &release));
	make.call.result = -ENOMEM;
	EXPECT(quiet(guardrail_do_grant, grant, &make) && quiet(guardrail_do_own, own, &make));
	/* After an allocation whose free was not seen, the next one at the address replaces its owner. */
	make.call.result = p;
	EXPECT(quiet(guardrail_do_own, own, &make));
	own.type++;
	EXPECT(quiet(guardrail_do_own, own, &make));
	EXPECT(!guardrail_check_owner(ONE, p, KIND, NULL) && guardrail_check_owner(ONE, p, KIND + 1, NULL));
	guardrail_revoke_all(ONE);
	kfree((void *)p);
	test_result("actions of allocations", true);
}

/* Memory that the domain owns is counted until it is released. */
static void quota(void)
{
	unsigned long p = (unsigned long)kzalloc(64, GFP_KERNEL);
	struct long_call make = { .call = { .args = { 1 << 19 }, .result = p } }, more = { .call = { .args = { 1 << 20 }, .result = p + 8 } };
	struct long_call release = { .call = { .args = { p } } };
	struct guardrail_action own = ACTION(.when = GUARDRAIL_RESULT_VALID, .pointer = WORD(GUARDRAIL_WORD_RESULT), .size = WORD(0),
					     .type = KIND), disown = ACTION(.pointer = WORD(0), .type = KIND);

	EXPECT(test_set_parameter("quota", "1"));
	EXPECT(quiet(guardrail_do_own, own, &make) && !quiet(guardrail_do_own, own, &more));
	EXPECT(quiet(guardrail_do_disown, disown, &release) && quiet(guardrail_do_own, own, &more));
	EXPECT(test_set_parameter("quota", "0") && quiet(guardrail_do_own, own, &make));
	guardrail_revoke_all(ONE);
	kfree((void *)p);
	test_result("a quota of memory", true);
}

int guardrail_custom_device(const struct guardrail_action *action, struct guardrail_call *call);

/* The kernel must receive a device where it expects one, and one that the domain can have come by. */
static void devices(void)
{
	struct device *none = kzalloc(sizeof(*none), GFP_KERNEL);
	struct long_call with = { .call = { .args = { (unsigned long)&platform_bus, (unsigned long)none, 0, 1UL << 62 } } };

	EXPECT(!quiet(guardrail_custom_device, ACTION(.pointer = WORD(0)), &with));
	EXPECT(quiet(guardrail_custom_grant_ref, ACTION(.pointer = WORD(0)), &with));
	EXPECT(quiet(guardrail_custom_device, ACTION(.pointer = WORD(0)), &with));
	EXPECT(quiet(guardrail_custom_device, ACTION(.pointer = WORD(0)), &with));
	EXPECT(quiet(guardrail_custom_revoke_ref, ACTION(.pointer = WORD(0)), &with));
	EXPECT(!quiet(guardrail_custom_device, ACTION(.pointer = WORD(0)), &with));
	EXPECT(!quiet(guardrail_custom_device, ACTION(.pointer = WORD(1)), &with));
	EXPECT(!quiet(guardrail_custom_device, ACTION(.pointer = WORD(2)), &with));
	EXPECT(!quiet(guardrail_custom_device, ACTION(.pointer = WORD(3)), &with));
	kfree(none);
	test_result("devices that are handed over", true);
}

/*
 * The same list at each position that a structure can have in a word of tags, over existing rights,
 * twice.
 */
static void fields(void)
{
	static const struct guardrail_field list[] = { { 8, 8 }, { 20, 2 }, { 23, 1 }, { 32, 16 }, { 133, 9 } };
	unsigned long memory = (unsigned long)kzalloc(512, GFP_KERNEL), p;
	struct guardrail_action action = ACTION(.pointer = WORD(0), .fields = list, .n_fields = ARRAY_SIZE(list));
	struct guardrail_usage usage;

	if (!EXPECT(memory))
		return;
	for (p = memory + 64; p < memory + 128; p += 4) {
		struct long_call call = { .call = { .args = { p } } };
		bool aligned = !(p % GUARDRAIL_SLOT);

		EXPECT(!guardrail_grant_fresh(TWO, p - 8, 8) && !guardrail_grant_fresh(TWO, p + 144, 8));
		EXPECT(quiet(guardrail_do_grant_fields, action, &call) && quiet(guardrail_do_grant_fields, action, &call));
		EXPECT(guardrail_check_write(ONE, p + 8, 8) && guardrail_check_write(ONE, p + 20, 2) &&
		       guardrail_check_write(ONE, p + 23, 1) && guardrail_check_write(ONE, p + 32, 16) &&
		       guardrail_check_write(ONE, p + 133, 9));
		EXPECT(!guardrail_check_write(ONE, p + 7, 1) && !guardrail_check_write(ONE, p + 16, 1) &&
		       !guardrail_check_write(ONE, p + 22, 1) && !guardrail_check_write(ONE, p + 48, 1) &&
		       !guardrail_check_write(ONE, p + 132, 1) && !guardrail_check_write(ONE, p + 142, 1));
		guardrail_usage(&usage);
		EXPECT(!aligned || !usage.conflicts);
		EXPECT(guardrail_check_write(TWO, p - 8, 8) && guardrail_check_write(TWO, p + 144, 8));
		EXPECT(quiet(guardrail_do_revoke_fields, action, &call));
		EXPECT(!guardrail_check_write(ONE, p + 8, 1) && !guardrail_check_write(ONE, p + 20, 1) &&
		       !guardrail_check_write(ONE, p + 23, 1) && !guardrail_check_write(ONE, p + 47, 1) &&
		       !guardrail_check_write(ONE, p + 133, 1) && !guardrail_check_write(ONE, p + 141, 1));
		/* Rights exist already: an object, another domain, more of the same slot. */
		EXPECT(!guardrail_create_object(ONE, p + 8, 16, TYPE) && !guardrail_grant_fresh(TWO, p + 40, 4));
		EXPECT(!guardrail_grant_fresh(ONE, p + 22, 1));
		EXPECT(quiet(guardrail_do_grant_fields, action, &call));
		EXPECT(guardrail_check_object(ONE, p + 8, TYPE) && guardrail_find_object(ONE, p, 64) == p + 8);
		EXPECT(guardrail_check_write(ONE, p + 8, 8) && guardrail_check_write(ONE, p + 20, 4) &&
		       guardrail_check_write(ONE, p + 32, 16) && guardrail_check_write(TWO, p + 40, 4));
		EXPECT(quiet(guardrail_do_revoke_fields, action, &call));
		EXPECT(guardrail_check_write(ONE, p + 22, 1) && !guardrail_check_write(ONE, p + 21, 1));
		EXPECT(guardrail_check_object(ONE, p + 8, TYPE) && guardrail_check_write(TWO, p + 40, 4));
		EXPECT(!guardrail_revoke(ONE, p - 8, 160) && !guardrail_revoke(TWO, p - 8, 160));
	}
	/* The masks end with the domain, and so do templates that use them. */
	guardrail_revoke_all(ONE);
	guardrail_revoke_all(TWO);
	guardrail_usage(&usage);
	EXPECT(!usage.masks && !usage.conflicts && !usage.records);
	EXPECT(!guardrail_grant_fresh(ONE, memory + 1, 5) && !guardrail_grant_fresh(ONE, memory + 9, 6));
	p = memory + 64;
	EXPECT(quiet(guardrail_do_grant_fields, action, &(struct long_call){ .call = { .args = { p } } }));
	EXPECT(guardrail_check_write(ONE, p + 20, 2) && guardrail_check_write(ONE, p + 23, 1) && !guardrail_check_write(ONE, p + 22, 1));
	guardrail_revoke_all(ONE);
	kfree((void *)memory);
	test_result("actions of fields", true);
}

static void objects(void)
{
	unsigned long p = (unsigned long)kzalloc(64, GFP_KERNEL);
	struct long_call call = { .call = { .args = { p + 16 } } }, whole = { .call = { .args = { p }, .result = p } };
	struct guardrail_action object = ACTION(.type = TYPE, .pointer = WORD(0), .size = CONST(24));
	struct guardrail_action require = ACTION(.type = TYPE, .pointer = WORD(0), .size = nothing), move = require, other = require;
	struct guardrail_action disown = ACTION(.type = KIND, .pointer = WORD(0));

	if (!EXPECT(p))
		return;
	EXPECT(!guardrail_grant_fresh(ONE, p, 64) && !guardrail_own(ONE, p, 64, KIND));
	EXPECT(!quiet(guardrail_do_require_object, require, &call));
	EXPECT(quiet(guardrail_do_create_object, object, &call) && quiet(guardrail_do_require_object, require, &call));
	EXPECT(!guardrail_check_write(ONE, p + 16, 24) && guardrail_check_write(ONE, p + 40, 24));
	other.type++;
	EXPECT(!quiet(guardrail_do_require_object, other, &call));
	/* The object moves from state 0 to 1, and is in state 1 then. */
	move.from = 0;
	move.to = 1;
	EXPECT(quiet(guardrail_do_move_object, move, &call) && !quiet(guardrail_do_move_object, move, &call));
	require.from = 1;
	EXPECT(quiet(guardrail_do_require_object, require, &call));
	/* The memory must not be freed while the object is in use. */
	EXPECT(!quiet(guardrail_do_disown, disown, &whole));
	EXPECT(!guardrail_grant_fresh(ONE, p, 64) && !guardrail_own(ONE, p, 64, KIND));
	EXPECT(quiet(guardrail_do_create_object, object, &call) && quiet(guardrail_do_move_object, move, &call));
	/* An object that is made anew is like a new one, also one of another type. */
	EXPECT(quiet(guardrail_do_create_object, object, &call) && guardrail_object_state(ONE, p + 16, TYPE) == 0);
	move.from = GUARDRAIL_ANY_STATE;
	move.to = 5;
	EXPECT(quiet(guardrail_do_move_object, move, &call) && guardrail_object_state(ONE, p + 16, TYPE) == 5);
	object.type++;
	EXPECT(quiet(guardrail_do_create_object, object, &call) && guardrail_check_object(ONE, p + 16, TYPE + 1));
	EXPECT(quiet(guardrail_do_forget_object, other, &call) && quiet(guardrail_do_forget_object, other, &call));
	EXPECT(!guardrail_check_object(ONE, p + 16, TYPE + 1));
	EXPECT(quiet(guardrail_do_disown, disown, &whole));
	guardrail_revoke_all(ONE);
	kfree((void *)p);
	test_result("actions of objects", true);
}

int guardrail_custom_frag_new(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_custom_skb_new(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_custom_skb_data_gone(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_custom_skb_built(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_custom_frag_free(const struct guardrail_action *action, struct guardrail_call *call);

static int note_owned(const struct guardrail_held *held, void *data)
{
	struct guardrail_held *found = data;

	if (held->right == GUARDRAIL_OWNER)
		*found = *held;
	return held->right == GUARDRAIL_OWNER || held->right == GUARDRAIL_WRITE ? 0 : -EINVAL;
}

/* True where the domain owns just this, or it is the last of what it owns. */
static bool owns(unsigned long p, unsigned long n)
{
	struct guardrail_held found = { .start = 0 };

	return !guardrail_walk(ONE, note_owned, &found) && found.start == p && found.len == n;
}

/* True where the table has no right of the domain in the page at @p. */
static bool is_blank(unsigned long p)
{
	return !memchr_inv((void *)((p >> GUARDRAIL_SLOT_SHIFT) + this_cpu_read(guardrail_table)), 0, PAGE_SIZE / GUARDRAIL_SLOT);
}

/* Buffers that are granted when they are written. */
static void buffers(void)
{
	unsigned long page = (unsigned long)kzalloc(PAGE_SIZE, GFP_KERNEL), p = page + 64, n = 1984, other = p + n;
	struct guardrail_action make = ACTION(.pointer = WORD(0), .size = WORD(1)), release = ACTION(.pointer = WORD(0));
	struct long_call call = { .call = { .args = { p, n } } }, inside = { .call = { .args = { p + 100, n } } };
	struct long_call second = { .call = { .args = { other, n } } };
	struct sk_buff *skb = kzalloc(sizeof(*skb), GFP_KERNEL);
	struct long_call built = { .call = { .args = { (unsigned long)skb, n } } };
	struct guardrail_usage usage;

	if (!EXPECT(page) || !EXPECT(skb))
		return;
	skb->head = (void *)p;
	skb->end = n - sizeof(struct skb_shared_info);
	EXPECT(!guardrail_prepare(page, PAGE_SIZE));
	/* It is owned and not granted. A store to it grants nothing beside it. */
	EXPECT(quiet(guardrail_custom_frag_new, make, &call) && owns(p, n));
	guardrail_usage(&usage);
	EXPECT(!usage.records && !inline_check(p + 512, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)));
	EXPECT(!guardrail_check_write(ONE, p - 1, 1) && !guardrail_check_write(ONE, p + n, 1) && !guardrail_check_write(TWO, p + 512, 1));
	EXPECT(!inline_check(p + 512, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)) && owns(p, n));
	/* A packet's buffer ends without having been granted. */
	EXPECT(quiet(guardrail_custom_skb_built, make, &built) && owns(0, 0) && !is_blank(page));
	EXPECT(quiet(guardrail_custom_skb_data_gone, make, &built) && is_blank(page));
	/* The driver may not release it any more. */
	EXPECT(quiet(guardrail_custom_frag_new, make, &call) && quiet(guardrail_custom_skb_built, make, &built));
	EXPECT(!quiet(guardrail_custom_frag_free, release, &call) && quiet(guardrail_custom_skb_data_gone, make, &built) && is_blank(page));
	/* Other memory that arrives with a packet, and memory that was written before it became a packet's. */
	EXPECT(quiet(guardrail_custom_skb_new, make, &built) && !inline_check(p, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)) && owns(0, 0));
	EXPECT(test_store(p + 64, 4, ONE) && quiet(guardrail_custom_skb_new, make, &built) && owns(0, 0));
	EXPECT(quiet(guardrail_custom_skb_data_gone, make, &built) && is_blank(page));
	EXPECT(quiet(guardrail_custom_frag_new, make, &call) && test_store(p, 1, ONE) && quiet(guardrail_custom_skb_built, make, &built));
	EXPECT(owns(0, 0) && guardrail_check_write(ONE, p, n));
	EXPECT(quiet(guardrail_custom_skb_data_gone, make, &built) && is_blank(page));
	/* A store grants all of it, and nothing of its neighbor; any address in it releases it. */
	EXPECT(quiet(guardrail_custom_frag_new, make, &call) && quiet(guardrail_custom_frag_new, make, &second));
	EXPECT(test_store(p + n - 8, 8, ONE) && owns(p, n));
	EXPECT(inline_check(p, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)) && !inline_check(other, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)));
	EXPECT(quiet(guardrail_custom_frag_free, release, &inside) && owns(other, n) && !guardrail_check_write(ONE, p, 1));
	EXPECT(test_store(other, 8, ONE) && guardrail_check_write(ONE, other, n) && quiet(guardrail_custom_frag_free, release, &second));
	EXPECT(!quiet(guardrail_custom_frag_free, release, &second) && is_blank(page));
	/* A revocation in one leaves the others, and a store to the rest leaves the revocation. */
	EXPECT(quiet(guardrail_custom_frag_new, make, &call) && !guardrail_revoke(ONE, p, 8));
	EXPECT(!guardrail_check_write(ONE, p, 8) && guardrail_check_write(ONE, p + 8, n - 8) && owns(p, n));
	EXPECT(quiet(guardrail_custom_frag_free, release, &call) && is_blank(page));
	/* Small buffers, and those that begin anywhere, are like all memory. */
	make.size = CONST(512);
	EXPECT(quiet(guardrail_custom_frag_new, make, &call) && inline_check(p, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)) && owns(p, 512));
	EXPECT(quiet(guardrail_custom_frag_free, release, &call));
	make.size = WORD(1);
	EXPECT(quiet(guardrail_custom_frag_new, make, &inside) && inline_check(p + 104, GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)));
	EXPECT(quiet(guardrail_custom_frag_free, release, &inside) && owns(0, 0));
	guardrail_revoke_all(ONE);
	guardrail_usage(&usage);
	EXPECT(!usage.records && is_blank(page));
	kfree((void *)page);
	kfree(skb);
	test_result("buffers that are granted when they are written", true);
}

/* Marks a packet at @p, where all may be written. */
static void skb_at(unsigned long p)
{
	static const struct guardrail_field fields[] = { { 16, 8 }, { 31, 1 }, { 112, 4 }, { sizeof(struct sk_buff) - 8, 8 } };
	struct long_call call = { .call = { .args = { p } } };
	struct guardrail_action object = ACTION(.type = GUARDRAIL_TYPE_SKB, .pointer = WORD(0), .size = CONST(sizeof(struct sk_buff)),
						.fields = fields, .n_fields = ARRAY_SIZE(fields));
	struct guardrail_action require = ACTION(.type = GUARDRAIL_TYPE_SKB, .pointer = WORD(0), .size = nothing);
	struct guardrail_usage before, after;
	int i;

	guardrail_usage(&before);
	EXPECT(!quiet(guardrail_do_require_object, require, &call) && !quiet(guardrail_do_destroy_object, require, &call));
	/*
	 * The first round learns the shape, the second uses it; in the third, the memory has
	 * another right.
	 */
	for (i = 0; i < 3; i++) {
		EXPECT(!guardrail_grant_fresh(ONE, p - 8, sizeof(struct sk_buff) + 16));
		if (i == 1)
			EXPECT(!guardrail_revoke(ONE, p, sizeof(struct sk_buff)));
		EXPECT(quiet(guardrail_do_create_object, object, &call) && quiet(guardrail_do_require_object, require, &call));
		EXPECT(guardrail_check_write(ONE, p - 8, 8) && guardrail_check_write(ONE, p + sizeof(struct sk_buff), 8));
		EXPECT(!guardrail_check_write(ONE, p, 8) && !guardrail_check_write(ONE, p + 24, 7) && !guardrail_check_write(ONE, p + 116, 1));
		EXPECT(guardrail_check_write(ONE, p + 16, 8) && guardrail_check_write(ONE, p + 31, 1) && guardrail_check_write(ONE, p + 112, 4));
		EXPECT(guardrail_find_object(ONE, p - 8, 64) == p && guardrail_object_state(ONE, p, GUARDRAIL_TYPE_SKB) == 0);
		EXPECT(guardrail_create_object(ONE, p, 64, GUARDRAIL_TYPE_SKB) == -EEXIST && !guardrail_check_object(ONE, p, TYPE));
		EXPECT(guardrail_move_object(ONE, p, GUARDRAIL_TYPE_SKB, 1, 0) == -EBUSY && guardrail_move_object(ONE, p, GUARDRAIL_TYPE_SKB, 0, 1));
		/*
		 * Another domain holds nothing of it, and may have rights beside it, and even its
		 * own there.
		 */
		EXPECT(!guardrail_check_object(TWO, p, GUARDRAIL_TYPE_SKB));
		if (i == 2) {
			EXPECT(!guardrail_grant_fresh(TWO, p, 12) && guardrail_check_write(TWO, p, 12));
			EXPECT(quiet(guardrail_do_require_object, require, &call) && !guardrail_check_write(ONE, p, 1));
			EXPECT(!guardrail_revoke(TWO, p, 12));
		}
		if (i) {
			EXPECT(guardrail_destroy_skb(ONE, p) && !guardrail_destroy_skb(ONE, p));
			EXPECT(!guardrail_check_write(ONE, p + 16, 1) && !guardrail_check_write(ONE, p + 112, 1));
		} else {
			EXPECT(quiet(guardrail_do_destroy_object, require, &call) && guardrail_check_write(ONE, p + 16, 8));
		}
		EXPECT(!guardrail_check_object(ONE, p, GUARDRAIL_TYPE_SKB));
	}
	guardrail_usage(&after);
	EXPECT(after.records == before.records && after.conflicts == before.conflicts);
}

static int count_skbs(const struct guardrail_held *held, void *data)
{
	if (held->type == GUARDRAIL_TYPE_SKB && held->right == GUARDRAIL_OBJECT && held->len == sizeof(struct sk_buff))
		++*(int *)data;
	return 0;
}

static void skbs(void)
{
	/* A page of the table is for 32 KiB. */
	unsigned long memory = (unsigned long)kzalloc(65536, GFP_KERNEL), edge, at;
	int n = 0;

	if (!EXPECT(memory))
		return;
	for (at = memory + 64; at < memory + 128; at += 8)
		skb_at(at);
	edge = ALIGN(memory + 1024, 32768);
	for (at = edge - 256; at <= edge; at += 56)
		skb_at(at);
	/* They are listed, with the memory around them. */
	EXPECT(!guardrail_create_object(ONE, memory + 64, 64, GUARDRAIL_TYPE_SKB) && !guardrail_create_object(ONE, edge, 64, GUARDRAIL_TYPE_SKB));
	EXPECT(!guardrail_walk(ONE, count_skbs, &n) && n == 2);
	/* Memory that is granted or revoked as a whole contains no packet any more. */
	EXPECT(!guardrail_revoke(ONE, memory, 512) && !guardrail_check_object(ONE, memory + 64, GUARDRAIL_TYPE_SKB));
	EXPECT(!guardrail_grant(ONE, edge, 512) && guardrail_check_object(ONE, edge, GUARDRAIL_TYPE_SKB));
	EXPECT(!guardrail_grant_fresh(ONE, edge, 512) && !guardrail_check_object(ONE, edge, GUARDRAIL_TYPE_SKB));
	guardrail_revoke_all(ONE);
	kfree((void *)memory);
	test_result("actions of network frames", true);
}

static void calls(void)
{
	static unsigned long data;
	struct long_call call = { .call = { .args = { (unsigned long)_printk, (unsigned long)&data } } };

	EXPECT(!quiet(guardrail_do_require_call, ACTION(.pointer = WORD(0)), &call));
	EXPECT(!guardrail_grant_call(ONE, (unsigned long)_printk));
	EXPECT(quiet(guardrail_do_require_call, ACTION(.pointer = WORD(0)), &call));
	EXPECT(!guardrail_revoke(ONE, (unsigned long)_printk, 1));
	EXPECT(!quiet(guardrail_do_require_call, ACTION(.pointer = WORD(1)), &call));
	EXPECT(quiet(guardrail_do_require_call, ACTION(.pointer = WORD(2)), &call));
	test_result("actions of functions that are handed on", true);
}

static void revoked(void)
{
	unsigned long p = (unsigned long)kzalloc(64, GFP_KERNEL);
	struct long_call call = { .call = { .args = { p } } };
	struct guardrail_action action = ACTION(.pointer = WORD(0), .size = CONST(64));

	if (!EXPECT(p))
		return;
	EXPECT(quiet(guardrail_do_grant, action, &call) && guardrail_check_write(ONE, p, 64));
	EXPECT(quiet(guardrail_do_revoke, action, &call) && !guardrail_check_write(ONE, p, 1));
	kfree((void *)p);
	test_result("rights that are granted and taken back", true);
}

void test_actions(void)
{
	values();
	conditions();
	allocation();
	guards();
	quota();
	devices();
	fields();
	objects();
	buffers();
	skbs();
	calls();
	revoked();
}
