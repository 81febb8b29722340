// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Slots that one tag cannot describe: several domains hold rights, or one holds rights to bytes for which it has no
 * mask. Their tag is GUARDRAIL_CONFLICT, and a node of the conflict table has the rights of every domain to every byte.
 *
 * Tags change here by compare-and-swap. Where whole slots change, ranges.c writes tags without it, so
 * GUARDRAIL_CONFLICT can be lost when two domains change rights to one slot at the same moment. The domain that wrote
 * the tag last has its right there; the node still has what the others hold. So a check that fails looks for a node
 * whatever the tag is. A node is freed when all that is left fits into the tag.
 */
#include <linux/hash.h>
#include <linux/spinlock.h>

#include "base/pool.h"
#include "rights/conflict.h"
#include "rights/mask.h"

#define HASH_BITS 10
#define RESERVE 64

/**
 * struct conflict - A slot whose rights one tag cannot express.
 * @node: Place in its bucket.
 * @tag: Address of the slot's tag.
 * @rights: Rights of each domain to each byte.
 */
struct conflict {
	struct hlist_node node;
	unsigned long tag;
	u8 rights[GUARDRAIL_DOMAINS - 1][GUARDRAIL_SLOT] __aligned(8);
};

static struct guardrail_pool pool;
static struct hlist_head table[1 << HASH_BITS];
/* Protects table, its nodes and n_conflicts. Taken in any context but NMI. The lock of masks nests inside. */
static DEFINE_SPINLOCK(lock);
static unsigned long n_conflicts;

static struct hlist_head *bucket(unsigned long tag)
{
	return &table[hash_long(tag, HASH_BITS)];
}

static struct conflict *find(unsigned long tag)
{
	struct conflict *conflict;

	lockdep_assert_held(&lock);
	hlist_for_each_entry(conflict, bucket(tag), node)
		if (conflict->tag == tag)
			return conflict;
	return NULL;
}

/* Decodes a tag other than GUARDRAIL_CONFLICT: the rights of the domain in it to each byte. */
static void decode(u8 tag, u8 rights[GUARDRAIL_SLOT])
{
	u8 mask = guardrail_writes[tag], right = tag & 0xf;
	int i;

	for (i = 0; i < GUARDRAIL_SLOT; i++)
		rights[i] = mask & 1 << i ? GUARDRAIL_WRITE : GUARDRAIL_READ;
	if (is_mark(right))
		rights[0] = right;
}

/* Finds the tag for these rights, or GUARDRAIL_CONFLICT if no tag has them. */
static u8 encode(u32 domain, const u8 rights[GUARDRAIL_SLOT], unsigned int most)
{
	u8 mask = 0;
	int i;

	for (i = 0; i < GUARDRAIL_SLOT; i++) {
		if (right_writes(rights[i]))
			mask |= 1 << i;
		/* Only the first byte can have a mark, and besides marks all bytes are writable or none. */
		if (rights[i] > GUARDRAIL_WRITE && i)
			return GUARDRAIL_CONFLICT;
	}
	if (rights[0] <= GUARDRAIL_WRITE)
		return guardrail_mask_tag(domain, mask, most);
	if (mask != (rights[0] == GUARDRAIL_OBJECT_WRITE ? 0xff : 0))
		return GUARDRAIL_CONFLICT;
	return GUARDRAIL_TAG(domain, rights[0]);
}

static void apply(const struct guardrail_slot_change *change, u8 rights[GUARDRAIL_SLOT])
{
	int i;

	for (i = 0; i < GUARDRAIL_SLOT; i++) {
		if (!(change->mask & 1 << i))
			continue;
		/* The first bytes of a packet are never written. */
		if (rights[i] == GUARDRAIL_SKB && change->keep_objects)
			continue;
		if (right_objects(rights[i]) && change->keep_objects)
			rights[i] = change->right == GUARDRAIL_WRITE ? GUARDRAIL_OBJECT_WRITE : GUARDRAIL_OBJECT;
		else
			rights[i] = change->right;
	}
}

/* Finds the tag of a node: the rights of a single domain if they fit, else GUARDRAIL_CONFLICT. */
static u8 encode_node(const struct conflict *conflict)
{
	u32 domain, only = 0;

	for (domain = 1; domain < GUARDRAIL_DOMAINS; domain++) {
		if (!*(u64 *)conflict->rights[domain - 1])
			continue;
		if (only)
			return GUARDRAIL_CONFLICT;
		only = domain;
	}
	return only ? encode(only, conflict->rights[only - 1], GUARDRAIL_SINGLE_MASKS) : 0;
}

/* Copies the rights in a tag to the node; returns the tag. */
static u8 take_over(struct conflict *conflict, u8 tag)
{
	if (tag && tag != GUARDRAIL_CONFLICT)
		decode(tag, conflict->rights[(tag >> 4) - 1]);
	return tag;
}

static bool swap_tag(unsigned long tag, u8 old, u8 new)
{
	return old == new || cmpxchg((u8 *)tag, old, new) == old;
}

/*
 * Finds what a tag of the domain, or 0, becomes; GUARDRAIL_CONFLICT where no tag can express it. Most changes make
 * bytes writable or read-only.
 */
static u8 changed(u8 old, const struct guardrail_slot_change *change)
{
	unsigned int most = change->many ? GUARDRAIL_MASKS : GUARDRAIL_SINGLE_MASKS;
	bool marked = is_mark(old & 0xf);
	u8 rights[GUARDRAIL_SLOT];

	if (!marked && change->right == GUARDRAIL_WRITE)
		return guardrail_mask_tag(change->domain, guardrail_writes[old] | change->mask, most);
	if (!marked && change->right == GUARDRAIL_READ)
		return guardrail_mask_tag(change->domain, guardrail_writes[old] & ~change->mask, most);
	if (!old && change->mask == 1)
		return GUARDRAIL_TAG(change->domain, change->right);
	/* A mark is removed, and nothing else is in the slot. */
	if (!guardrail_writes[old] && change->mask & 1 && change->right == GUARDRAIL_READ && !change->keep_objects)
		return 0;
	decode(old, rights);
	apply(change, rights);
	return encode(change->domain, rights, most);
}

/* Changes a tag that needs no node; false where it needs one. */
static bool change_tag(unsigned long tag, const struct guardrail_slot_change *change)
{
	u8 old, new;

	do {
		old = READ_ONCE(*(u8 *)tag);
		if (old == GUARDRAIL_CONFLICT)
			return false;
		/* It is another domain's, and this domain has nothing to lose there. */
		if (old && old >> 4 != change->domain)
			return change->right == GUARDRAIL_READ;
		new = changed(old, change);
		if (new == GUARDRAIL_CONFLICT)
			return false;
	} while (!swap_tag(tag, old, new));
	return true;
}

/*
 * Changes the rights in a node, under the lock. The node enters the table before the tag becomes GUARDRAIL_CONFLICT,
 * and leaves it after the tag has another value.
 */
static void change_node(struct conflict *conflict, const struct guardrail_slot_change *change)
{
	u8 old, new;

	do {
		old = take_over(conflict, READ_ONCE(*(u8 *)conflict->tag));
		apply(change, conflict->rights[change->domain - 1]);
		new = encode_node(conflict);
	} while (!swap_tag(conflict->tag, old, new));
}

static void drop_if_done(struct conflict *conflict)
{
	lockdep_assert_held(&lock);
	if (encode_node(conflict) == GUARDRAIL_CONFLICT)
		return;
	hlist_del(&conflict->node);
	WRITE_ONCE(n_conflicts, n_conflicts - 1);
	guardrail_pool_free(&pool, conflict);
}

int guardrail_slot_change(unsigned long tag, const struct guardrail_slot_change *change)
{
	struct conflict *conflict;
	unsigned long flags;

	/* Without a node, the tag is all that has to change. */
	if (hlist_empty(bucket(tag)) && change_tag(tag, change))
		return 0;
	spin_lock_irqsave(&lock, flags);
	conflict = find(tag);
	if (!conflict) {
		/* A slot gets a node only under the lock. */
		if (change_tag(tag, change)) {
			spin_unlock_irqrestore(&lock, flags);
			return 0;
		}
		conflict = guardrail_pool_alloc(&pool);
		if (!conflict) {
			spin_unlock_irqrestore(&lock, flags);
			return -ENOMEM;
		}
		conflict->tag = tag;
		memset(conflict->rights, 0, sizeof(conflict->rights));
		hlist_add_head(&conflict->node, bucket(tag));
		WRITE_ONCE(n_conflicts, n_conflicts + 1);
	}
	change_node(conflict, change);
	drop_if_done(conflict);
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

/* Combines tag and node. Under the lock no right moves between the two. */
static void rights_now(unsigned long tag, u32 domain, u8 rights[GUARDRAIL_SLOT])
{
	struct conflict *conflict;
	int value;

	lockdep_assert_held(&lock);
	value = tag_peek(tag);
	memset(rights, GUARDRAIL_READ, GUARDRAIL_SLOT);
	if (value < 0)
		return;
	conflict = find(tag);
	if (value != GUARDRAIL_CONFLICT && value >> 4 == domain)
		decode(value, rights);
	else if (conflict)
		memcpy(rights, conflict->rights[domain - 1], GUARDRAIL_SLOT);
	/* GUARDRAIL_CONFLICT was lost: restore it, or free the node. */
	if (conflict && value != GUARDRAIL_CONFLICT) {
		change_node(conflict, &(struct guardrail_slot_change){ .domain = domain });
		drop_if_done(conflict);
	}
}

void guardrail_slot_rights(unsigned long tag, u32 domain, u8 rights[GUARDRAIL_SLOT])
{
	unsigned long flags;
	int value = tag_peek(tag);

	/*
	 * Without a node the tag says all. If a node lost GUARDRAIL_CONFLICT and was freed meanwhile, the tag has
	 * become what all domains hold.
	 */
	if (value >= 0 && value != GUARDRAIL_CONFLICT && hlist_empty(bucket(tag)) && tag_peek(tag) == value) {
		if (value >> 4 == domain)
			decode(value, rights);
		else
			memset(rights, GUARDRAIL_READ, GUARDRAIL_SLOT);
		return;
	}
	spin_lock_irqsave(&lock, flags);
	rights_now(tag, domain, rights);
	spin_unlock_irqrestore(&lock, flags);
}

static bool all_hold(const u8 rights[GUARDRAIL_SLOT], u8 mask, u8 right)
{
	int i;

	for (i = 0; i < GUARDRAIL_SLOT; i++) {
		if (!(mask & 1 << i))
			continue;
		if (right == GUARDRAIL_WRITE ? !right_writes(rights[i]) : rights[i] != right)
			return false;
	}
	return true;
}

bool guardrail_slot_holds(unsigned long tag, u32 domain, u8 mask, u8 right)
{
	u8 rights[GUARDRAIL_SLOT];
	int value = tag_peek(tag);

	if (value < 0)
		return false;
	if (value != GUARDRAIL_CONFLICT && value >> 4 == domain) {
		if (right == GUARDRAIL_WRITE && !(mask & ~guardrail_writes[value]))
			return true;
		decode(value, rights);
		if (all_hold(rights, mask, right))
			return true;
	}
	/* Try once more, under the lock: no right moves between tag and node there. */
	guardrail_slot_rights(tag, domain, rights);
	return all_hold(rights, mask, right);
}

void guardrail_conflict_forget(u32 domain)
{
	struct conflict *conflict;
	struct hlist_node *next;
	unsigned long flags;
	int i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		spin_lock_irqsave(&lock, flags);
		hlist_for_each_entry_safe(conflict, next, &table[i], node) {
			change_node(conflict, &(struct guardrail_slot_change){ .domain = domain, .mask = 0xff });
			drop_if_done(conflict);
		}
		spin_unlock_irqrestore(&lock, flags);
	}
}

unsigned long guardrail_conflict_count(void)
{
	return READ_ONCE(n_conflicts);
}

int __init guardrail_conflict_init(void)
{
	return guardrail_pool_init(&pool, "guardrail_conflict", sizeof(struct conflict), RESERVE);
}

void guardrail_conflict_exit(void)
{
	u32 domain;

	for (domain = 1; domain < GUARDRAIL_DOMAINS; domain++)
		guardrail_conflict_forget(domain);
	guardrail_pool_exit(&pool);
}
