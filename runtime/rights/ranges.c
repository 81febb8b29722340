// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rights to ranges: granted, taken, checked and told. Whole slots that change between nothing and writable, which is nearly all, are
 * done eight at a time and without synchronization; the rest goes to conflict.c slot by slot.
 */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/skbuff.h>

#include "border/custom.h"

/* What began as an object in these bytes of a slot is one no more. */
static void forget_objects(unsigned long entry, u32 domain, u8 mask)
{
	u8 rights[GUARDRAIL_SLOT];
	int i;

	guardrail_slot_rights(entry, domain, rights);
	for (i = 0; i < GUARDRAIL_SLOT; i++)
		if (mask & 1 << i && right_objects(rights[i]) && rights[i] != GUARDRAIL_SKB)
			guardrail_object_forget(domain, slot_of(entry) + i);
}

static int change_slot(unsigned long entry, const struct slot_change *change)
{
	u8 value = READ_ONCE(*(u8 *)entry);
	bool object = value == GUARDRAIL_ENTRY(change->domain, GUARDRAIL_OBJECT) ||
		      value == GUARDRAIL_ENTRY(change->domain, GUARDRAIL_OBJECT_WRITE);

	if (!change->keep_objects && (object || value == GUARDRAIL_CONFLICT))
		forget_objects(entry, change->domain, change->mask);
	/* Of a buffer whose first or last bytes change, the others stay what they stand for. */
	if (value == GUARDRAIL_ENTRY(change->domain, GUARDRAIL_OWNER))
		guardrail_buffer_grant(change->domain, slot_of(entry));
	return guardrail_slot_change(entry, change);
}

/* True where eight entries are of the domain or nobody's, and no object or buffer begins there: then they can change at once. */
static bool can_change(u64 word, u32 domain)
{
	u64 ones = EIGHT(1), fours = EIGHT(0xf), high = word >> 4 & fours, low = word & fours;
	/* In each byte, the fifth bit of x + 15 says whether a number of four bits is not 0. */
	u64 others = (high + fours) & ((high ^ domain * ones) + fours);
	u64 no_objects = ((low & ~ones) ^ GUARDRAIL_OBJECT * ones) + fours, no_buffers = (low ^ GUARDRAIL_OWNER * ones) + fours;

	return !((others | ~no_objects | ~no_buffers | (low + ones)) & EIGHT(0x10));
}

/* The entries of a word that are in @part change at once, if what they are lets them. */
static bool change_word(u64 *word, u64 part, u64 to, u32 domain)
{
	u64 old = READ_ONCE(*word);

	if ((old & part) == (to & part))
		return true;
	if (!can_change(old & part, domain))
		return false;
	return cmpxchg(word, old, (old & ~part) | (to & part)) == old;
}

/* The same; where they are unlike, one by one. */
static int change_part(unsigned long word, u64 part, u64 to, const struct slot_change *change)
{
	u8 from = WRITABLE(change->domain) ^ (u8)to;
	int i, err = 0;

	if (change_word((u64 *)word, part, to, change->domain))
		return 0;
	for (i = 0; i < 8 && !err; i++) {
		u8 *entry = (u8 *)word + i;

		if (!(part >> 8 * i & 1))
			continue;
		if (READ_ONCE(*entry) == from)
			WRITE_ONCE(*entry, (u8)to);
		else if (READ_ONCE(*entry) != (u8)to)
			err = change_slot(word + i, change);
	}
	return err;
}

/* Whole slots, whose entries from @entry to @last are in one page of the table, which is populated. */
static int change_entries(unsigned long entry, unsigned long last, const struct slot_change *change)
{
	u64 writable = EIGHT(WRITABLE(change->domain)), to = change->right == GUARDRAIL_WRITE ? writable : 0;
	u64 from = writable ^ to;
	unsigned long word = entry & ~7UL;
	int err = 0;

	if (unlikely(entry != word || last < word + 7)) {
		u64 part = ~0ULL << 8 * (entry - word);

		if (last < word + 7)
			part &= ~0ULL >> 8 * (word + 7 - last);
		err = change_part(word, part, to, change);
		word += 8;
	}
	for (; word + 7 <= last && !err; word += 8) {
		u64 old = READ_ONCE(*(u64 *)word);

		if (old == from)
			WRITE_ONCE(*(u64 *)word, to);
		else if (old != to)
			err = change_part(word, ~0ULL, to, change);
	}
	if (!err && word <= last)
		err = change_part(word, ~0ULL >> 8 * (word + 7 - last), to, change);
	return err;
}

/* Words of entries up to @last, as long as all are what is expected; where there may be one that is not. Eight at a time, since buffers have many. */
static __always_inline unsigned long change_alike(unsigned long word, unsigned long last, u64 from, u64 to)
{
	unsigned int i;

	for (; word + 63 <= last; word += 64)
#pragma GCC unroll 8
		for (i = 0; i < 8; i++) {
			u64 *one = (u64 *)word + i;

			/* Those of the eight that have changed are what they are to be. */
			if (unlikely(READ_ONCE(*one) != from))
				return word;
			WRITE_ONCE(*one, to);
		}
	for (; word + 7 <= last && READ_ONCE(*(u64 *)word) == from; word += 8)
		WRITE_ONCE(*(u64 *)word, to);
	return word;
}

/* The first entry of the next page of the table, or the end. */
static unsigned long page_end(unsigned long entry, unsigned long end)
{
	return min(end, (entry & PAGE_MASK) + PAGE_SIZE);
}

/* A range that begins or ends within a slot, reaches over pages of the table, or lies where it has none. */
static noinline int change_range(unsigned long p, unsigned long n, struct slot_change *change)
{
	unsigned long entry = entry_of(p), last = entry_of(p + n - 1), end = last + 1;
	int err = 0;

	if (change->right != GUARDRAIL_READ) {
		err = populate(entry, last);
		if (err)
			return err;
	}
	/* The first slot and the last, where only a part of them is meant. */
	change->mask = slot_mask(p, p + n);
	if (change->mask != 0xff) {
		if (entry_peek(entry) >= 0)
			err = change_slot(entry, change);
		entry++;
	}
	if (!err && entry <= last && (p + n) % GUARDRAIL_SLOT) {
		change->mask = slot_mask(slot_of(last), p + n);
		if (entry_peek(last) >= 0)
			err = change_slot(last, change);
		end = last;
	}
	change->mask = 0xff;
	while (!err && entry < end) {
		unsigned long stop = page_end(entry, end);

		if (change->right != GUARDRAIL_READ || entry_peek(entry) >= 0)
			err = change_entries(entry, stop - 1, change);
		entry = stop;
	}
	return err;
}

/* What is left of a range of whole slots, or all of any other. */
static noinline int change_rest(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects)
{
	struct slot_change change = { .domain = domain, .mask = 0xff, .right = right, .keep_objects = keep_objects };
	unsigned long entry = entry_of(p), last = entry_of(p + n - 1);

	if (!((p | n) % GUARDRAIL_SLOT) && !((entry ^ last) & PAGE_MASK) && entry_peek(entry) >= 0)
		return change_entries(entry, last, &change);
	return change_range(p, n, &change);
}

static __always_inline int range_change(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects)
{
	unsigned long entry = entry_of(p), last, next;
	u64 writable, to;

	if (!n)
		return 0;
	if (!is_domain(domain) || !is_kernel_range(p, n))
		return -EINVAL;
	last = entry_of(p + n - 1);
	/* Nearly all that changes hands are whole slots in one page of the table, from a multiple of 64 bytes on. */
	if (unlikely((p | n) % GUARDRAIL_SLOT || entry % 8 || (entry ^ last) & PAGE_MASK || entry_peek(entry) < 0))
		return change_rest(domain, p, n, right, keep_objects);
	writable = EIGHT(WRITABLE(domain));
	to = right == GUARDRAIL_WRITE ? writable : 0;
	next = change_alike(entry, last, writable ^ to, to);
	if (next > last)
		return 0;
	n -= (next - entry) * GUARDRAIL_SLOT;
	return change_rest(domain, p + (next - entry) * GUARDRAIL_SLOT, n, right, keep_objects);
}

int guardrail_range_change(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects)
{
	return range_change(domain, p, n, right, keep_objects);
}

int guardrail_set_write(u32 domain, unsigned long p, unsigned long n)
{
	return range_change(domain, p, n, GUARDRAIL_WRITE, false);
}
EXPORT_SYMBOL_GPL(guardrail_set_write);

int guardrail_add_write(u32 domain, unsigned long p, unsigned long n)
{
	return range_change(domain, p, n, GUARDRAIL_WRITE, true);
}
EXPORT_SYMBOL_GPL(guardrail_add_write);

int guardrail_clear(u32 domain, unsigned long p, unsigned long n)
{
	return range_change(domain, p, n, GUARDRAIL_READ, false);
}
EXPORT_SYMBOL_GPL(guardrail_clear);

int guardrail_set_icall(u32 domain, unsigned long p)
{
	struct slot_change change = {
		.domain = domain, .mask = slot_mask(p, p + 1), .right = GUARDRAIL_ICALL,
	};
	int err;

	if (!is_domain(domain) || !is_kernel_range(p, 1))
		return -EINVAL;
	err = guardrail_populate(entry_of(p), entry_of(p));
	return err ?: change_slot(entry_of(p), &change);
}
EXPORT_SYMBOL_GPL(guardrail_set_icall);

bool guardrail_check_icall(u32 domain, unsigned long p)
{
	if (!is_domain(domain) || !is_kernel_range(p, 1))
		return false;
	if (guardrail_slot_holds(entry_of(p), domain, slot_mask(p, p + 1), GUARDRAIL_ICALL))
		return true;
	return guardrail_is_code(p) && !guardrail_is_guarded(p);
}
EXPORT_SYMBOL_GPL(guardrail_check_icall);

/* The first byte in the slot at @entry that is in @mask and not writable, or -1. */
static int denied_in_slot(unsigned long entry, u32 domain, u8 mask)
{
	u8 rights[GUARDRAIL_SLOT];
	int i;

	if (guardrail_slot_holds(entry, domain, mask, GUARDRAIL_WRITE))
		return -1;
	if (entry_peek(entry) >= 0)
		guardrail_slot_rights(entry, domain, rights);
	else
		memset(rights, GUARDRAIL_READ, sizeof(rights));
	for (i = 0; i < GUARDRAIL_SLOT; i++)
		if (mask & 1 << i && !right_writes(rights[i]))
			return i;
	return -1;
}

unsigned long guardrail_first_denied(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long entry, last, end = p + n;

	if (!n)
		return end;
	if (!is_domain(domain) || p < KERNEL_HALF)
		return p;
	/* Beyond the last byte that there is come those of user space, which are nobody's. */
	if (end - 1 < p)
		return guardrail_first_denied(domain, p, -p);
	entry = entry_of(p);
	last = entry_of(end - 1);
	while (entry <= last) {
		unsigned long stop = page_end(entry, last + 1);
		bool there = entry_peek(entry) >= 0;

		while (entry < stop) {
			unsigned long slot = slot_of(entry);
			u8 mask;
			int byte;

			if (there && stop - entry >= 8 && READ_ONCE(*(u64 *)entry) == EIGHT(WRITABLE(domain))) {
				entry += 8;
				continue;
			}
			if (there && READ_ONCE(*(u8 *)entry) == WRITABLE(domain)) {
				entry++;
				continue;
			}
			mask = slot_mask(max(slot, p), end);
			byte = denied_in_slot(entry, domain, mask);
			if (byte >= 0 && guardrail_buffer_grant(domain, slot + byte))
				continue;
			if (byte >= 0)
				return slot + byte;
			entry++;
		}
	}
	return end;
}

bool guardrail_check_write(u32 domain, unsigned long p, unsigned long n)
{
	return guardrail_first_denied(domain, p, n) == p + n;
}
EXPORT_SYMBOL_GPL(guardrail_check_write);

unsigned long guardrail_find_object(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long entry, last;

	if (!is_domain(domain) || !is_kernel_range(p, n))
		return 0;
	last = entry_of(p + n - 1);
	for (entry = entry_of(p); entry <= last; entry++) {
		int value = entry_peek(entry);
		u8 rights[GUARDRAIL_SLOT];
		u8 mask;
		int i;

		if (value < 0) {
			entry = page_end(entry, last + 1) - 1;
			continue;
		}
		if (!value || value == WRITABLE(domain))
			continue;
		mask = slot_mask(max(slot_of(entry), p), p + n);
		guardrail_slot_rights(entry, domain, rights);
		for (i = 0; i < GUARDRAIL_SLOT; i++)
			if (mask & 1 << i && right_objects(rights[i]))
				return slot_of(entry) + i;
	}
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_find_object);

/* What is told next, as far as it is known. */
struct walk {
	struct guardrail_held held;
	int (*each)(const struct guardrail_held *held, void *data);
	void *data;
};

static int tell(struct walk *walk)
{
	struct guardrail_held held = walk->held;

	walk->held.len = 0;
	return held.len ? walk->each(&held, walk->data) : 0;
}

/* [p, p + n) is writable. */
static int tell_writable(struct walk *walk, unsigned long p, unsigned long n)
{
	int err = 0;

	if (walk->held.len && walk->held.start + walk->held.len != p)
		err = tell(walk);
	if (!walk->held.len) {
		walk->held.start = p;
		walk->held.right = GUARDRAIL_WRITE;
	}
	walk->held.len += n;
	return err;
}

/* A buffer of which nothing has been granted begins or ends there. */
static int tell_buffer(struct walk *walk, unsigned long p)
{
	struct guardrail_range range;
	int err = tell(walk);

	if (err || !guardrail_buffer_owned(walk->held.domain, p, &range) || range.start != p)
		return err;
	walk->held.start = range.start;
	walk->held.len = range.len;
	walk->held.right = GUARDRAIL_OWNER;
	walk->held.type = KIND_FRAG;
	err = tell(walk);
	walk->held.type = 0;
	return err;
}

static int tell_slot(struct walk *walk, unsigned long entry)
{
	u8 rights[GUARDRAIL_SLOT];
	int i, err = 0;

	guardrail_slot_rights(entry, walk->held.domain, rights);
	for (i = 0; i < GUARDRAIL_SLOT && !err; i++) {
		if (right_writes(rights[i])) {
			err = tell_writable(walk, slot_of(entry) + i, 1);
		} else if (rights[i] == GUARDRAIL_ICALL) {
			err = tell(walk);
			walk->held.start = slot_of(entry) + i;
			walk->held.len = 1;
			walk->held.right = GUARDRAIL_ICALL;
			err = err ?: tell(walk);
		} else if (rights[i] == GUARDRAIL_SKB) {
			err = tell(walk);
			walk->held.start = slot_of(entry) + i;
			walk->held.len = sizeof(struct sk_buff);
			walk->held.right = GUARDRAIL_OBJECT;
			walk->held.type = GUARDRAIL_TYPE_SKB;
			err = err ?: tell(walk);
			walk->held.type = 0;
		} else if (rights[i] == GUARDRAIL_OWNER) {
			err = err ?: tell_buffer(walk, slot_of(entry));
		}
	}
	return err;
}

static int tell_page(unsigned long page, void *data)
{
	struct walk *walk = data;
	u8 domain = walk->held.domain;
	unsigned long entry = page;
	int err = 0;

	while (entry < page + PAGE_SIZE && !err) {
		u64 value = READ_ONCE(*(u64 *)entry);
		unsigned long next = entry + 8;

		if (value == EIGHT(WRITABLE(domain)))
			err = tell_writable(walk, slot_of(entry), 8 * GUARDRAIL_SLOT);
		else if (value)
			for (; entry < next && !err; entry++) {
				u8 one = READ_ONCE(*(u8 *)entry);

				if (one == GUARDRAIL_CONFLICT || one >> 4 == domain)
					err = tell_slot(walk, entry);
			}
		entry = next;
	}
	return err;
}

int guardrail_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data)
{
	struct walk walk = { .held.domain = domain, .each = each, .data = data };
	int err;

	if (!is_domain(domain))
		return -EINVAL;
	err = guardrail_each_page(tell_page, &walk);
	err = err ?: tell(&walk);
	return err ?: guardrail_objects_walk(domain, each, data);
}
EXPORT_SYMBOL_GPL(guardrail_walk);

static int clear_page_of(unsigned long page, void *data)
{
	u32 domain = *(u32 *)data;
	unsigned long entry;

	for (entry = page; entry < page + PAGE_SIZE; entry++) {
		u8 value;

		if (!(entry % 8) && !READ_ONCE(*(u64 *)entry)) {
			entry += 7;
			continue;
		}
		value = READ_ONCE(*(u8 *)entry);
		if (value != GUARDRAIL_CONFLICT && value >> 4 == domain)
			cmpxchg((u8 *)entry, value, 0);
	}
	return 0;
}

void guardrail_clear_domain(u32 domain)
{
	if (!is_domain(domain))
		return;
	/* First the nodes: what they leave of this domain's would go back into the table. */
	guardrail_conflict_forget(domain);
	guardrail_each_page(clear_page_of, &domain);
	guardrail_objects_forget_all(domain);
	guardrail_masks_forget(domain);
}
EXPORT_SYMBOL_GPL(guardrail_clear_domain);
