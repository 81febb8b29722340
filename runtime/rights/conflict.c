// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Slots that one entry cannot describe: several domains hold rights, or one holds rights to bytes for which it has no mask. Their
 * entry says so, and a node of the conflict table has the rights of every domain to every byte.
 *
 * An entry is changed here by compare-and-swap. Where whole slots change, rights.c writes entries without that, so the mark can
 * be lost when two domains change rights to the same slot at the same moment: the one that wrote the entry last has its right there, and
 * what the others hold is still in the node. So a check that fails looks for a node whatever the entry says. A node goes when
 * no right but what fits into the entry is left.
 */
#include <linux/hash.h>
#include <linux/spinlock.h>

#include "internal.h"

#define HASH_BITS 10
#define RESERVE 64

struct conflict {
	struct hlist_node node;
	unsigned long entry;
	u8 rights[GUARDRAIL_DOMAINS - 1][GUARDRAIL_SLOT] __aligned(8);
};

static struct guardrail_pool pool;
static struct hlist_head table[1 << HASH_BITS];
static DEFINE_SPINLOCK(lock);
static unsigned long n_conflicts;

static struct hlist_head *bucket(unsigned long entry)
{
	return &table[hash_long(entry, HASH_BITS)];
}

static struct conflict *find(unsigned long entry)
{
	struct conflict *conflict;

	lockdep_assert_held(&lock);
	hlist_for_each_entry(conflict, bucket(entry), node)
		if (conflict->entry == entry)
			return conflict;
	return NULL;
}

/* What an entry other than GUARDRAIL_CONFLICT says of each byte, to the domain that it names. */
static void decode(u8 entry, u8 rights[GUARDRAIL_SLOT])
{
	u8 mask = guardrail_writes[entry], right = entry & 0xf;
	int i;

	for (i = 0; i < GUARDRAIL_SLOT; i++)
		rights[i] = mask & 1 << i ? GUARDRAIL_WRITE : GUARDRAIL_READ;
	if (is_mark(right))
		rights[0] = right;
}

/* The entry that says this of a slot, or GUARDRAIL_CONFLICT where none can. */
static u8 encode(u32 domain, const u8 rights[GUARDRAIL_SLOT], unsigned int most)
{
	u8 mask = 0;
	int i;

	for (i = 0; i < GUARDRAIL_SLOT; i++) {
		if (right_writes(rights[i]))
			mask |= 1 << i;
		/* Marks are known at the first byte alone, and go with all or nothing. */
		if (rights[i] > GUARDRAIL_WRITE && i)
			return GUARDRAIL_CONFLICT;
	}
	if (rights[0] <= GUARDRAIL_WRITE)
		return guardrail_mask_entry(domain, mask, most);
	if (mask != (rights[0] == GUARDRAIL_OBJECT_WRITE ? 0xff : 0))
		return GUARDRAIL_CONFLICT;
	return GUARDRAIL_ENTRY(domain, rights[0]);
}

static void apply(const struct slot_change *change, u8 rights[GUARDRAIL_SLOT])
{
	int i;

	for (i = 0; i < GUARDRAIL_SLOT; i++) {
		if (!(change->mask & 1 << i))
			continue;
		/* The first bytes of a frame are never written. */
		if (rights[i] == GUARDRAIL_SKB && change->keep_objects)
			continue;
		if (right_objects(rights[i]) && change->keep_objects)
			rights[i] = change->right == GUARDRAIL_WRITE ? GUARDRAIL_OBJECT_WRITE : GUARDRAIL_OBJECT;
		else
			rights[i] = change->right;
	}
}

/* The entry of a node: what a single domain holds if it fits, else GUARDRAIL_CONFLICT. */
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

/* The entry, with what it says taken over into the node. */
static u8 take_over(struct conflict *conflict, u8 entry)
{
	if (entry && entry != GUARDRAIL_CONFLICT)
		decode(entry, conflict->rights[(entry >> 4) - 1]);
	return entry;
}

static bool swap_entry(unsigned long entry, u8 old, u8 new)
{
	return old == new || cmpxchg((u8 *)entry, old, new) == old;
}

/*
 * The entry that an entry of the domain, or of none, becomes; GUARDRAIL_CONFLICT where none can say it. Bytes that become writable or
 * read-only are most of what comes here.
 */
static u8 changed(u8 old, const struct slot_change *change)
{
	unsigned int most = change->many ? GUARDRAIL_MASKS : GUARDRAIL_SINGLE_MASKS;
	bool marked = is_mark(old & 0xf);
	u8 rights[GUARDRAIL_SLOT];

	if (!marked && change->right == GUARDRAIL_WRITE)
		return guardrail_mask_entry(change->domain, guardrail_writes[old] | change->mask, most);
	if (!marked && change->right == GUARDRAIL_READ)
		return guardrail_mask_entry(change->domain, guardrail_writes[old] & ~change->mask, most);
	if (!old && change->mask == 1)
		return GUARDRAIL_ENTRY(change->domain, change->right);
	/* A mark goes, and there is nothing else in the slot. */
	if (!guardrail_writes[old] && change->mask & 1 && change->right == GUARDRAIL_READ && !change->keep_objects)
		return 0;
	decode(old, rights);
	apply(change, rights);
	return encode(change->domain, rights, most);
}

/* Changes an entry that stays one that needs no node; false where it has to be done with one. */
static bool change_entry(unsigned long entry, const struct slot_change *change)
{
	u8 old, new;

	do {
		old = READ_ONCE(*(u8 *)entry);
		if (old == GUARDRAIL_CONFLICT)
			return false;
		/* Another domain's, and this one has nothing to lose there. */
		if (old && old >> 4 != change->domain)
			return change->right == GUARDRAIL_READ;
		new = changed(old, change);
		if (new == GUARDRAIL_CONFLICT)
			return false;
	} while (!swap_entry(entry, old, new));
	return true;
}

/*
 * The same with a node, under the lock. The node is in the table before the entry says so, and leaves it after the entry says
 * something else.
 */
static void change_node(struct conflict *conflict, const struct slot_change *change)
{
	u8 old, new;

	do {
		old = take_over(conflict, READ_ONCE(*(u8 *)conflict->entry));
		apply(change, conflict->rights[change->domain - 1]);
		new = encode_node(conflict);
	} while (!swap_entry(conflict->entry, old, new));
}

static void drop_if_done(struct conflict *conflict)
{
	if (encode_node(conflict) == GUARDRAIL_CONFLICT)
		return;
	hlist_del(&conflict->node);
	WRITE_ONCE(n_conflicts, n_conflicts - 1);
	guardrail_pool_free(&pool, conflict);
}

/* The entry must be populated. */
int guardrail_slot_change(unsigned long entry, const struct slot_change *change)
{
	struct conflict *conflict;
	unsigned long flags;

	/* Without a node for it, that is all there is to do. */
	if (hlist_empty(bucket(entry)) && change_entry(entry, change))
		return 0;
	spin_lock_irqsave(&lock, flags);
	conflict = find(entry);
	if (!conflict) {
		/* Whoever takes a slot for a node does so under the lock. */
		if (change_entry(entry, change)) {
			spin_unlock_irqrestore(&lock, flags);
			return 0;
		}
		conflict = guardrail_pool_alloc(&pool);
		if (!conflict) {
			spin_unlock_irqrestore(&lock, flags);
			return -ENOMEM;
		}
		conflict->entry = entry;
		memset(conflict->rights, 0, sizeof(conflict->rights));
		hlist_add_head(&conflict->node, bucket(entry));
		WRITE_ONCE(n_conflicts, n_conflicts + 1);
	}
	change_node(conflict, change);
	drop_if_done(conflict);
	spin_unlock_irqrestore(&lock, flags);
	return 0;
}

/* What entry and node together say of the domain's rights. Under the lock nothing moves from the one to the other. */
static void rights_now(unsigned long entry, u32 domain, u8 rights[GUARDRAIL_SLOT])
{
	struct conflict *conflict;
	int value;

	lockdep_assert_held(&lock);
	value = entry_peek(entry);
	memset(rights, GUARDRAIL_READ, GUARDRAIL_SLOT);
	if (value < 0)
		return;
	conflict = find(entry);
	if (value != GUARDRAIL_CONFLICT && value >> 4 == domain)
		decode(value, rights);
	else if (conflict)
		memcpy(rights, conflict->rights[domain - 1], GUARDRAIL_SLOT);
	/* The mark was lost: it comes back, or the node goes. */
	if (conflict && value != GUARDRAIL_CONFLICT) {
		change_node(conflict, &(struct slot_change){ .domain = domain });
		drop_if_done(conflict);
	}
}

void guardrail_slot_rights(unsigned long entry, u32 domain, u8 rights[GUARDRAIL_SLOT])
{
	unsigned long flags;
	int value = entry_peek(entry);

	/*
	 * Without a node the entry says all. Where there was one whose mark was lost, and it has gone meanwhile, the entry has become what
	 * all hold.
	 */
	if (value >= 0 && value != GUARDRAIL_CONFLICT && hlist_empty(bucket(entry)) && entry_peek(entry) == value) {
		if (value >> 4 == domain)
			decode(value, rights);
		else
			memset(rights, GUARDRAIL_READ, GUARDRAIL_SLOT);
		return;
	}
	spin_lock_irqsave(&lock, flags);
	rights_now(entry, domain, rights);
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

/* Whether the domain has the right to all bytes in @mask. */
bool guardrail_slot_holds(unsigned long entry, u32 domain, u8 mask, u8 right)
{
	u8 rights[GUARDRAIL_SLOT];
	int value = entry_peek(entry);

	if (value < 0)
		return false;
	if (value != GUARDRAIL_CONFLICT && value >> 4 == domain) {
		if (right == GUARDRAIL_WRITE && !(mask & ~guardrail_writes[value]))
			return true;
		decode(value, rights);
		if (all_hold(rights, mask, right))
			return true;
	}
	/* Again, where nothing can be on its way between entry and node. */
	guardrail_slot_rights(entry, domain, rights);
	return all_hold(rights, mask, right);
}

/* What the domain has in nodes goes. */
void guardrail_conflict_forget(u32 domain)
{
	struct conflict *conflict;
	struct hlist_node *next;
	unsigned long flags;
	int i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		spin_lock_irqsave(&lock, flags);
		hlist_for_each_entry_safe(conflict, next, &table[i], node) {
			change_node(conflict, &(struct slot_change){ .domain = domain, .mask = 0xff });
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
