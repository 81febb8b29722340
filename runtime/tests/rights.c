// SPDX-License-Identifier: GPL-2.0-or-later
/* Rights to whole slots, halves, single bytes, of several domains; objects, owners, call targets; the walk. */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/vmalloc.h>

#include "test.h"

#define SIZE 512

/* Zeroed memory without rights, at a multiple of 64. */
static unsigned long memory;

static unsigned long at(unsigned long offset)
{
	return memory + offset;
}

static u8 entry_at(unsigned long offset)
{
	return *(u8 *)((at(offset) >> GUARDRAIL_SLOT_SHIFT) + this_cpu_read(guardrail_table));
}

/* Revokes everything, so that nothing is left for the next test. */
static void clean(void)
{
	struct guardrail_usage usage;

	EXPECT(!guardrail_revoke(ONE, memory, SIZE));
	EXPECT(!guardrail_revoke(TWO, memory, SIZE));
	EXPECT(!guardrail_revoke(LAST, memory, SIZE));
	EXPECT(!memchr_inv((void *)((memory >> GUARDRAIL_SLOT_SHIFT) + this_cpu_read(guardrail_table)), 0, SIZE / GUARDRAIL_SLOT));
	guardrail_usage(&usage);
	EXPECT(!usage.conflicts);
	EXPECT(!usage.records);
}

static void whole_slots(void)
{
	EXPECT(!guardrail_grant_fresh(ONE, at(64), 64));
	EXPECT(entry_at(64) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE));
	EXPECT(entry_at(120) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE));
	EXPECT(!entry_at(56) && !entry_at(128));
	EXPECT(guardrail_check_write(ONE, at(64), 64));
	EXPECT(!guardrail_check_write(ONE, at(63), 64));
	EXPECT(!guardrail_check_write(ONE, at(65), 64));
	EXPECT(!guardrail_check_write(TWO, at(64), 1));
	EXPECT(guardrail_check_write(ONE, at(100), 0));
	EXPECT(!guardrail_revoke(ONE, at(80), 8));
	EXPECT(guardrail_check_write(ONE, at(64), 16) && guardrail_check_write(ONE, at(88), 40));
	EXPECT(!guardrail_check_write(ONE, at(87), 1) && !guardrail_check_write(ONE, at(80), 1));
	/* A revocation of another domain has no effect. */
	EXPECT(!guardrail_revoke(TWO, at(64), 64));
	EXPECT(guardrail_check_write(ONE, at(64), 16));
	clean();
	test_result("whole slots", true);
}

static void halves(void)
{
	EXPECT(!guardrail_grant_fresh(ONE, at(4), 8));
	EXPECT(entry_at(0) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE_HIGH));
	EXPECT(entry_at(8) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE_LOW));
	EXPECT(guardrail_check_write(ONE, at(4), 8) && guardrail_check_write(ONE, at(6), 4));
	EXPECT(!guardrail_check_write(ONE, at(3), 2) && !guardrail_check_write(ONE, at(8), 5));
	EXPECT(!guardrail_grant_fresh(ONE, at(0), 4));
	EXPECT(entry_at(0) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE));
	EXPECT(!guardrail_revoke(ONE, at(4), 4));
	EXPECT(entry_at(0) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE_LOW));
	clean();
	test_result("half slots", true);
}

static bool none_writable(unsigned long offset, unsigned long n)
{
	while (n--)
		if (guardrail_check_write(ONE, at(offset + n), 1))
			return false;
	return true;
}

/* Ranges of up to three slots from each byte of a slot: no byte beside one changes, also where both ends cut a slot. */
static void cut_slots(void)
{
	unsigned long from, n;

	for (from = 64; from < 64 + GUARDRAIL_SLOT; from++) {
		for (n = 1; n <= 3 * GUARDRAIL_SLOT; n++) {
			unsigned long end = from + n;

			EXPECT(!guardrail_grant_fresh(ONE, at(from), n));
			EXPECT(guardrail_check_write(ONE, at(from), n));
			EXPECT(none_writable(56, from - 56) && none_writable(end, 104 - end));
			EXPECT(!guardrail_grant_fresh(ONE, at(56), 48));
			EXPECT(!guardrail_revoke(ONE, at(from), n));
			EXPECT(none_writable(from, n));
			EXPECT(guardrail_check_write(ONE, at(56), from - 56) && guardrail_check_write(ONE, at(end), 104 - end));
			clean();
			/* The next range needs other masks. */
			guardrail_revoke_all(ONE);
		}
	}
	test_result("ranges that cut slots", true);
}

static void single_bytes(void)
{
	struct guardrail_usage usage;
	u8 mask;
	int i;

	EXPECT(!guardrail_grant_fresh(ONE, at(19), 3));
	mask = entry_at(16);
	EXPECT(mask >> 4 == ONE && (mask & 0xf) >= GUARDRAIL_MASK);
	guardrail_usage(&usage);
	EXPECT(!usage.conflicts && usage.masks == 1);
	for (i = 0; i < 8; i++)
		EXPECT(guardrail_check_write(ONE, at(16 + i), 1) == (i >= 3 && i < 6));
	EXPECT(guardrail_check_write(ONE, at(19), 3) && !guardrail_check_write(ONE, at(19), 4));
	/* The check fails, and the slow path knows the bytes. */
	EXPECT(!inline_check(at(19), GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)));
	EXPECT(test_store(at(19), 1, ONE) && test_store(at(20), 2, ONE));
	/* The same bytes of another slot have the same tag, and another domain's have another. */
	EXPECT(!guardrail_grant_fresh(ONE, at(27), 3) && !guardrail_grant_fresh(TWO, at(43), 3));
	EXPECT(entry_at(24) == mask && entry_at(40) >> 4 == TWO);
	EXPECT(!guardrail_check_write(ONE, at(43), 1) && !guardrail_check_write(TWO, at(27), 1));
	guardrail_usage(&usage);
	EXPECT(!usage.conflicts && usage.masks == 2);
	/* A revoked range leaves nothing, and a grant beside it makes the slot whole. */
	EXPECT(!guardrail_revoke(ONE, at(24), 8) && !entry_at(24));
	EXPECT(!guardrail_grant_fresh(ONE, at(16), 8));
	EXPECT(entry_at(16) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE));
	/* A range of 13 bytes: a slot, a half, a byte. */
	EXPECT(!guardrail_grant_fresh(ONE, at(64), 13));
	EXPECT(guardrail_check_write(ONE, at(64), 13) && !guardrail_check_write(ONE, at(64), 14));
	EXPECT(!guardrail_revoke(ONE, at(65), 11));
	EXPECT(guardrail_check_write(ONE, at(64), 1) && guardrail_check_write(ONE, at(76), 1));
	EXPECT(!guardrail_check_write(ONE, at(65), 1) && !guardrail_check_write(ONE, at(75), 1));
	clean();
	/* The masks are free again when the domain holds nothing any more. */
	guardrail_revoke_all(ONE);
	guardrail_revoke_all(TWO);
	guardrail_usage(&usage);
	EXPECT(!usage.masks);
	test_result("single bytes", true);
}

/* Sets of bytes for which there is no mask any more: the first n of a slot. */
static void many_masks(void)
{
	static const u8 lengths[] = { 1, 2, 3, 5, 6, 7 };
	struct guardrail_usage usage;
	int i;

	for (i = 0; i < ARRAY_SIZE(lengths); i++)
		EXPECT(!guardrail_grant_fresh(ONE, at(16 * i), lengths[i]));
	guardrail_usage(&usage);
	EXPECT(usage.masks == GUARDRAIL_SINGLE_MASKS);
	EXPECT(usage.conflicts == ARRAY_SIZE(lengths) - GUARDRAIL_SINGLE_MASKS);
	EXPECT(entry_at(16 * 5) == GUARDRAIL_CONFLICT);
	for (i = 0; i < ARRAY_SIZE(lengths); i++)
		EXPECT(guardrail_check_write(ONE, at(16 * i), lengths[i]) &&
		       !guardrail_check_write(ONE, at(16 * i + lengths[i]), 1));
	/* Rights that fit into a tag again leave the conflict table. */
	EXPECT(!guardrail_grant_fresh(ONE, at(16 * 5), 8));
	EXPECT(entry_at(16 * 5) == GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE));
	EXPECT(!guardrail_revoke(ONE, at(16 * 4 + 1), 7));
	EXPECT(entry_at(16 * 4) >> 4 == ONE && guardrail_check_write(ONE, at(16 * 4), 1));
	guardrail_usage(&usage);
	EXPECT(usage.conflicts == ARRAY_SIZE(lengths) - GUARDRAIL_SINGLE_MASKS - 2);
	/* The domain has nothing left, in a node or elsewhere. */
	guardrail_revoke_all(ONE);
	guardrail_usage(&usage);
	EXPECT(!usage.conflicts && !usage.masks);
	clean();
	test_result("more sets of bytes than masks", true);
}

/*
 * Mixed words: tags beside the range, tags of other domains and objects in it, and every kind of
 * tag of the domain itself.
 */
static void mixed_words(void)
{
	int shift;

	for (shift = 0; shift < 64; shift += 8) {
		EXPECT(!guardrail_grant_fresh(ONE, at(shift), 256));
		EXPECT(!guardrail_revoke(ONE, at(shift + 10), 3) && !guardrail_revoke(ONE, at(shift + 28), 4));
		EXPECT(!guardrail_grant_fresh(TWO, at(shift + 64), 8) && !guardrail_grant_fresh(TWO, at(shift + 101), 2));
		EXPECT(!guardrail_create_object(ONE, at(shift + 136), 16, 3));
		EXPECT(!guardrail_grant_fresh(LAST, at(shift + 152), 3));
		EXPECT(guardrail_check_write(ONE, at(shift), 10) && guardrail_check_write(ONE, at(shift + 13), 15));
		EXPECT(guardrail_check_write(ONE, at(shift + 32), 104) && guardrail_check_write(ONE, at(shift + 152), 104));
		/* Other domains and the slots beside the range keep their rights. */
		EXPECT(!guardrail_revoke(ONE, at(shift + 8), 240));
		EXPECT(guardrail_check_write(ONE, at(shift), 8) && guardrail_check_write(ONE, at(shift + 248), 8));
		EXPECT(none_writable(shift + 8, 240));
		EXPECT(guardrail_check_write(TWO, at(shift + 64), 8) && guardrail_check_write(TWO, at(shift + 101), 2));
		EXPECT(!guardrail_check_write(TWO, at(shift + 103), 1) && guardrail_check_write(LAST, at(shift + 152), 3));
		EXPECT(!guardrail_check_object(ONE, at(shift + 136), 3));
		/* Parts turn into whole slots. */
		EXPECT(!guardrail_grant_fresh(ONE, at(shift + 9), 2) && !guardrail_grant_fresh(ONE, at(shift + 16), 4));
		EXPECT(!guardrail_grant_fresh(ONE, at(shift), 256) && guardrail_check_write(ONE, at(shift), 256));
		EXPECT(guardrail_check_write(TWO, at(shift + 101), 2) && guardrail_check_write(LAST, at(shift + 152), 3));
		clean();
	}
	guardrail_revoke_all(ONE);
	guardrail_revoke_all(TWO);
	guardrail_revoke_all(LAST);
	test_result("words of unlike entries", true);
}

static void two_domains(void)
{
	EXPECT(!guardrail_grant_fresh(ONE, at(8), 2));
	EXPECT(!guardrail_grant_fresh(TWO, at(12), 4));
	EXPECT(!guardrail_grant_fresh(LAST, at(8), 8));
	EXPECT(entry_at(8) == GUARDRAIL_CONFLICT);
	EXPECT(guardrail_check_write(ONE, at(8), 2) && !guardrail_check_write(ONE, at(8), 3));
	EXPECT(guardrail_check_write(TWO, at(12), 4) && !guardrail_check_write(TWO, at(11), 4));
	EXPECT(guardrail_check_write(LAST, at(8), 8));
	EXPECT(!guardrail_revoke(LAST, at(8), 8));
	EXPECT(guardrail_check_write(ONE, at(8), 2) && guardrail_check_write(TWO, at(12), 4));
	EXPECT(!guardrail_revoke(ONE, at(8), 8));
	EXPECT(entry_at(8) == GUARDRAIL_TAG(TWO, GUARDRAIL_WRITE_HIGH));
	/* After a grant over slots of another domain, both domains hold those. */
	EXPECT(!guardrail_grant_fresh(ONE, at(0), 128));
	EXPECT(guardrail_check_write(ONE, at(0), 128) && guardrail_check_write(TWO, at(12), 4));
	/* Tags of the last domain are not confused with the mark of a conflict. */
	EXPECT(!guardrail_grant_fresh(LAST, at(256), 64));
	EXPECT(guardrail_check_write(LAST, at(256), 64) && !guardrail_check_write(ONE, at(256), 1));
	/* Both a set of bytes and another domain's rights are in one slot. */
	EXPECT(!guardrail_grant_fresh(ONE, at(401), 2) && !guardrail_grant_fresh(TWO, at(401), 5));
	EXPECT(entry_at(400) == GUARDRAIL_CONFLICT);
	EXPECT(guardrail_check_write(ONE, at(401), 2) && !guardrail_check_write(ONE, at(401), 3));
	EXPECT(guardrail_check_write(TWO, at(401), 5) && !guardrail_check_write(TWO, at(400), 1));
	EXPECT(!guardrail_revoke(TWO, at(400), 8) && entry_at(400) >> 4 == ONE);
	EXPECT(guardrail_check_write(ONE, at(401), 2) && !guardrail_check_write(ONE, at(403), 1));
	clean();
	test_result("several domains", true);
}

static void objects(void)
{
	static const struct guardrail_field fields[] = { { 0, 4 }, { 12, 4 }, { 24, 8 } };

	EXPECT(!guardrail_grant_fresh(ONE, at(0), 128));
	EXPECT(!guardrail_create_object(ONE, at(32), 64, 7));
	EXPECT(guardrail_create_object(ONE, at(32), 64, 8) == -EEXIST);
	EXPECT(guardrail_check_object(ONE, at(32), 7));
	EXPECT(!guardrail_check_object(ONE, at(32), 8) && !guardrail_check_object(ONE, at(40), 7));
	EXPECT(!guardrail_check_object(TWO, at(32), 7));
	EXPECT(guardrail_check_write(ONE, at(0), 32) && guardrail_check_write(ONE, at(96), 32));
	EXPECT(!guardrail_check_write(ONE, at(32), 1) && !guardrail_check_write(ONE, at(95), 1));
	EXPECT(entry_at(32) == GUARDRAIL_TAG(ONE, GUARDRAIL_OBJECT));
	EXPECT(guardrail_find_object(ONE, at(0), 128) == at(32));
	EXPECT(!guardrail_find_object(ONE, at(33), 95));
	/* Fields are writable, and it stays an object. */
	EXPECT(!guardrail_grant_fields(ONE, at(32), fields, ARRAY_SIZE(fields)));
	EXPECT(guardrail_check_object(ONE, at(32), 7));
	EXPECT(guardrail_check_write(ONE, at(32), 4) && !guardrail_check_write(ONE, at(36), 1));
	EXPECT(guardrail_check_write(ONE, at(44), 4) && guardrail_check_write(ONE, at(56), 8));
	EXPECT(guardrail_find_object(ONE, at(0), 128) == at(32));
	/* The object moves between states. */
	EXPECT(guardrail_object_state(ONE, at(32), 7) == 0);
	EXPECT(!guardrail_move_object(ONE, at(32), 7, 0, 3));
	EXPECT(guardrail_move_object(ONE, at(32), 7, 0, 4) == -EBUSY);
	EXPECT(guardrail_move_object(ONE, at(40), 7, 0, 4) == -ENOENT);
	EXPECT(guardrail_object_state(ONE, at(32), 7) == 3);
	/* Another domain has an object of its own at the same address. */
	EXPECT(!guardrail_create_object(TWO, at(32), 64, 7));
	EXPECT(!guardrail_destroy_object(ONE, at(32), 7));
	EXPECT(guardrail_destroy_object(ONE, at(32), 7) == -ENOENT);
	EXPECT(guardrail_check_object(TWO, at(32), 7) && !guardrail_check_object(ONE, at(32), 7));
	EXPECT(!guardrail_destroy_object(TWO, at(32), 7));
	/*
	 * Memory that is granted or revoked as a whole contains no object any more, also where the
	 * memory does not begin a slot.
	 */
	EXPECT(!guardrail_create_object(ONE, at(205), 30, 9));
	EXPECT(guardrail_check_object(ONE, at(205), 9) && guardrail_find_object(ONE, at(200), 8) == at(205));
	EXPECT(!guardrail_revoke(ONE, at(200), 64) && !guardrail_check_object(ONE, at(205), 9));
	EXPECT(!guardrail_create_object(ONE, at(208), 30, 9));
	EXPECT(!guardrail_grant_fresh(ONE, at(200), 64) && !guardrail_check_object(ONE, at(208), 9));
	clean();
	test_result("objects", true);
}

static void owners(void)
{
	unsigned long size = 0;

	EXPECT(!guardrail_grant_fresh(ONE, at(64), 64));
	EXPECT(!guardrail_own(ONE, at(64), 64, 3));
	EXPECT(guardrail_own(ONE, at(64), 64, 4) == -EEXIST);
	EXPECT(guardrail_check_owner(ONE, at(64), 3, &size) && size == 64);
	EXPECT(!guardrail_check_owner(ONE, at(64), 4, NULL) && !guardrail_check_owner(TWO, at(64), 3, NULL));
	EXPECT(!guardrail_check_owner(ONE, at(72), 3, NULL));
	EXPECT(guardrail_check_write(ONE, at(64), 64) && !guardrail_check_write(ONE, at(56), 1));
	/* The first bytes are as quick to write as all others. */
	EXPECT(inline_check(at(64), GUARDRAIL_TAG(ONE, GUARDRAIL_WRITE)));
	EXPECT(!guardrail_disown(ONE, at(64), 3));
	EXPECT(guardrail_disown(ONE, at(64), 3) == -ENOENT);
	clean();
	test_result("owners", true);
}

static noinline void aligned_target(void)
{
	barrier();
}

static void targets(void)
{
	unsigned long target = (unsigned long)aligned_target;

	/* The domain has received nothing, so it may call no function of the kernel. */
	EXPECT(!guardrail_check_call(ONE, (unsigned long)_printk) && !guardrail_check_call(ONE, (unsigned long)_printk + 4));
	EXPECT(!guardrail_check_call(ONE, memory) && !guardrail_check_call(ONE, 0));
	EXPECT(!guardrail_grant_call(ONE, target));
	EXPECT(guardrail_check_call(ONE, target));
	if (!(target % GUARDRAIL_SLOT))
		EXPECT(inline_check(target, GUARDRAIL_TAG(ONE, GUARDRAIL_CALL)));
	EXPECT(!guardrail_revoke(ONE, target, 1));
	EXPECT(!inline_check(target, GUARDRAIL_TAG(ONE, GUARDRAIL_CALL)));
	/* This call target does not begin a slot. */
	EXPECT(!guardrail_grant_call(ONE, at(11)));
	EXPECT(guardrail_check_call(ONE, at(11)));
	EXPECT(!guardrail_check_call(ONE, at(8)) && !guardrail_check_call(ONE, at(12)));
	clean();
	test_result("call targets", true);
}

struct listed {
	struct guardrail_held held[16];
	int n;
};

static int note(const struct guardrail_held *held, void *data)
{
	struct listed *listed = data;

	if (listed->n < ARRAY_SIZE(listed->held))
		listed->held[listed->n] = *held;
	listed->n++;
	return 0;
}

static bool is_listed(const struct listed *listed, u32 right, unsigned long start, unsigned long len, u32 type)
{
	int i;

	for (i = 0; i < min_t(int, listed->n, ARRAY_SIZE(listed->held)); i++) {
		const struct guardrail_held *held = &listed->held[i];

		if (held->right == right && held->start == start && held->len == len && held->type == type)
			return true;
	}
	return false;
}

static int stop_at_once(const struct guardrail_held *held, void *data)
{
	return 42;
}

static void walk(void)
{
	/* The range has tags in three pages of the table, and in two of its trees at least. */
	unsigned long big = 80 << 10;
	void *far = vmalloc(big);
	struct listed listed = { .n = 0 };

	if (!EXPECT(far))
		return;
	EXPECT(!guardrail_grant_fresh(ONE, at(4), 24));
	EXPECT(!guardrail_grant_fresh(ONE, at(35), 2));
	EXPECT(!guardrail_grant_call(ONE, at(128)));
	EXPECT(!guardrail_grant_fresh(ONE, (unsigned long)far + 8, big - 11));
	EXPECT(!guardrail_grant_fresh(TWO, at(400), 8));
	EXPECT(!guardrail_create_object(ONE, at(160), 24, 5));
	EXPECT(!guardrail_grant(ONE, at(160), 8));
	EXPECT(!guardrail_own(ONE, at(192), 32, 6));
	EXPECT(!guardrail_walk(ONE, note, &listed));
	EXPECT(listed.n == 7);
	EXPECT(is_listed(&listed, GUARDRAIL_WRITE, at(4), 24, 0));
	EXPECT(is_listed(&listed, GUARDRAIL_WRITE, at(35), 2, 0));
	EXPECT(is_listed(&listed, GUARDRAIL_WRITE, at(160), 8, 0));
	EXPECT(is_listed(&listed, GUARDRAIL_WRITE, (unsigned long)far + 8, big - 11, 0));
	EXPECT(is_listed(&listed, GUARDRAIL_CALL, at(128), 1, 0));
	EXPECT(is_listed(&listed, GUARDRAIL_OBJECT, at(160), 24, 5));
	EXPECT(is_listed(&listed, GUARDRAIL_OWNER, at(192), 32, 6));
	EXPECT(guardrail_walk(ONE, stop_at_once, NULL) == 42);
	guardrail_revoke_all(ONE);
	listed.n = 0;
	EXPECT(!guardrail_walk(ONE, note, &listed) && !listed.n);
	EXPECT(guardrail_check_write(TWO, at(400), 8));
	vfree(far);
	clean();
	test_result("the walk", true);
}

static void refusals(void)
{
	EXPECT(guardrail_grant_fresh(0, at(0), 8) == -EINVAL);
	EXPECT(guardrail_grant_fresh(16, at(0), 8) == -EINVAL);
	EXPECT(guardrail_grant_fresh(ONE, 0x1000, 8) == -EINVAL);
	EXPECT(guardrail_grant_fresh(ONE, ~7UL, 16) == -EINVAL);
	EXPECT(!guardrail_grant_fresh(ONE, at(0), 0));
	EXPECT(!guardrail_check_write(0, at(0), 8) && !guardrail_check_write(ONE, ~7UL, 16));
	EXPECT(!guardrail_check_write(ONE, at(0), ~0UL));
	EXPECT(guardrail_create_object(ONE, at(0), 8, 0) == -EINVAL);
	EXPECT(guardrail_own(ONE, at(8), 8, 0) == -EINVAL);
	/* These are the last bytes of the address space. */
	EXPECT(!guardrail_grant_fresh(ONE, ~7UL, 8));
	EXPECT(guardrail_check_write(ONE, ~7UL, 8));
	EXPECT(!guardrail_revoke(ONE, ~7UL, 8) && !guardrail_check_write(ONE, ~0UL, 1));
	clean();
	test_result("what is refused", true);
}

/* Grants, in a context that cannot wait, for memory where the table has no pages yet. */
static int in_tasklet;

static void grant(struct tasklet_struct *tasklet)
{
	/*
	 * The addresses have no memory: no grant reads or writes it. Each is in another tree of the
	 * table.
	 */
	unsigned long nowhere = (unsigned long)memory & ~((1UL << 40) - 1);
	int i, err = 0;

	for (i = 0; i < 48 && !err; i++)
		err = guardrail_grant_fresh(LAST, nowhere + ((unsigned long)i << 34) + 24, 8);
	for (i = 0; i < 48 && !err; i++)
		if (!guardrail_check_write(LAST, nowhere + ((unsigned long)i << 34) + 24, 8) ||
		    guardrail_check_write(LAST, nowhere + ((unsigned long)i << 34) + 16, 1))
			err = -EIO;
	WRITE_ONCE(in_tasklet, err ?: 1);
}

static void atomic(void)
{
	static DECLARE_TASKLET(tasklet, grant);
	struct guardrail_usage before, after;
	int tries;

	guardrail_usage(&before);
	tasklet_schedule(&tasklet);
	tasklet_kill(&tasklet);
	EXPECT(in_tasklet == 1);
	guardrail_usage(&after);
	EXPECT(after.table_pages > before.table_pages);
	/* The work that fills the reserve again needs some time. */
	for (tries = 0; tries < 100; tries++) {
		guardrail_usage(&after);
		if (after.reserve >= before.reserve)
			break;
		msleep(20);
	}
	EXPECT(after.reserve >= before.reserve / 2);
	guardrail_revoke_all(LAST);
	test_result("grants where nobody can wait", true);
}

void test_rights(void)
{
	/* The allocation has the allocator's own alignment. */
	memory = (unsigned long)kzalloc(SIZE, GFP_KERNEL);
	if (!memory || guardrail_prepare(memory, SIZE)) {
		test_result("memory for the tests", false);
		return;
	}
	whole_slots();
	halves();
	cut_slots();
	single_bytes();
	many_masks();
	mixed_words();
	two_domains();
	objects();
	owners();
	targets();
	walk();
	refusals();
	atomic();
	kfree((void *)memory);
}
