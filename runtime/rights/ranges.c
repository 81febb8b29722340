// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rights to ranges. Nearly all changes make whole slots writable or read-only: these change eight
 * slots at a time and take no lock. conflict.c changes the rest slot by slot.
 */
#include <linux/mm.h>
#include <linux/sched.h>

#include "rights/buffer.h"
#include "rights/conflict.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "rights/table.h"

/* Drops the records of objects that begin in these bytes of a slot. */
static void forget_objects(unsigned long tag, u32 domain, u8 mask)
{
	u8 rights[GUARDRAIL_SLOT];
	int i;

	guardrail_slot_rights(tag, domain, rights);
	for (i = 0; i < GUARDRAIL_SLOT; i++)
		if (mask & 1 << i && right_objects(rights[i]) && rights[i] != GUARDRAIL_SKB)
			guardrail_object_forget(domain, slot_of(tag) + i);
}

static int change_slot(unsigned long tag, const struct guardrail_slot_change *change)
{
	u8 value = READ_ONCE(*(u8 *)tag);
	bool object = value == GUARDRAIL_TAG(change->domain, GUARDRAIL_OBJECT) ||
		      value == GUARDRAIL_TAG(change->domain, GUARDRAIL_OBJECT_WRITE);

	if (!change->keep_objects && (object || value == GUARDRAIL_CONFLICT))
		forget_objects(tag, change->domain, change->mask);
	/* The buffer at whose begin or end bytes change becomes plain memory first. */
	if (value == GUARDRAIL_TAG(change->domain, GUARDRAIL_OWNER))
		guardrail_buffer_grant(change->domain, slot_of(tag));
	return guardrail_slot_change(tag, change);
}

/* True where eight tags can change at once: they are the domain's or 0, and no object or buffer begins there. */
static bool can_change(u64 word, u32 domain)
{
	u64 ones = EIGHT(1), fours = EIGHT(0xf), high = word >> 4 & fours, low = word & fours;
	/* In each byte, the fifth bit of x + 15 is set where a number of four bits is not 0. */
	u64 others = (high + fours) & ((high ^ domain * ones) + fours);
	u64 no_objects = ((low & ~ones) ^ GUARDRAIL_OBJECT * ones) + fours, no_buffers = (low ^ GUARDRAIL_OWNER * ones) + fours;

	return !((others | ~no_objects | ~no_buffers | (low + ones)) & EIGHT(0x10));
}

/* Changes the tags of a word that are in @part at once, if they allow it. */
static bool change_word(u64 *word, u64 part, u64 to, u32 domain)
{
	u64 old = READ_ONCE(*word);

	if ((old & part) == (to & part))
		return true;
	if (!can_change(old & part, domain))
		return false;
	return cmpxchg(word, old, (old & ~part) | (to & part)) == old;
}

/* The same; tags that differ change one by one. */
static int change_part(unsigned long word, u64 part, u64 to, const struct guardrail_slot_change *change)
{
	u8 from = WRITABLE(change->domain) ^ (u8)to;
	int i, err = 0;

	if (change_word((u64 *)word, part, to, change->domain))
		return 0;
	for (i = 0; i < 8 && !err; i++) {
		u8 *tag = (u8 *)word + i;

		if (!(part >> 8 * i & 1))
			continue;
		if (READ_ONCE(*tag) == from)
			WRITE_ONCE(*tag, (u8)to);
		else if (READ_ONCE(*tag) != (u8)to)
			err = change_slot(word + i, change);
	}
	return err;
}

/* Changes whole slots, whose tags from @tag to @last are in one populated page of the table. */
static int change_tags(unsigned long tag, unsigned long last, const struct guardrail_slot_change *change)
{
	u64 writable = EIGHT(WRITABLE(change->domain)), to = change->right == GUARDRAIL_WRITE ? writable : 0;
	u64 from = writable ^ to;
	unsigned long word = tag & ~7UL;
	int err = 0;

	if (unlikely(tag != word || last < word + 7)) {
		u64 part = ~0ULL << 8 * (tag - word);

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

/*
 * Changes words of tags up to @last while all are as expected; returns the first that may differ. It takes eight words
 * at a time, since buffers have many.
 */
static __always_inline unsigned long change_alike(unsigned long word, unsigned long last, u64 from, u64 to)
{
	unsigned int i;

	for (; word + 63 <= last; word += 64)
#pragma GCC unroll 8
		for (i = 0; i < 8; i++) {
			u64 *one = (u64 *)word + i;

			/* The words before it have their new value already. */
			if (unlikely(READ_ONCE(*one) != from))
				return word;
			WRITE_ONCE(*one, to);
		}
	for (; word + 7 <= last && READ_ONCE(*(u64 *)word) == from; word += 8)
		WRITE_ONCE(*(u64 *)word, to);
	return word;
}

/* Finds the first tag of the next page of the table, or the end. */
static unsigned long page_end(unsigned long tag, unsigned long end)
{
	return min(end, (tag & PAGE_MASK) + PAGE_SIZE);
}

/* Changes a range that begins or ends within a slot, reaches over pages of the table, or lies where it has none. */
static noinline int change_range(unsigned long p, unsigned long n, struct guardrail_slot_change *change)
{
	unsigned long tag = tag_of(p), last = tag_of(p + n - 1), end = last + 1;
	int err = 0;

	if (change->right != GUARDRAIL_READ) {
		err = populate(tag, last);
		if (err)
			return err;
	}
	/* The first slot and the last may change only in part. */
	change->mask = slot_mask(p, p + n);
	if (change->mask != 0xff) {
		if (tag_peek(tag) >= 0)
			err = change_slot(tag, change);
		tag++;
	}
	if (!err && tag <= last && (p + n) % GUARDRAIL_SLOT) {
		change->mask = slot_mask(slot_of(last), p + n);
		if (tag_peek(last) >= 0)
			err = change_slot(last, change);
		end = last;
	}
	change->mask = 0xff;
	while (!err && tag < end) {
		unsigned long stop = page_end(tag, end);

		if (change->right != GUARDRAIL_READ || tag_peek(tag) >= 0)
			err = change_tags(tag, stop - 1, change);
		tag = stop;
	}
	return err;
}

/* Changes what is left of a range of whole slots, or all of any other. */
static noinline int change_rest(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects)
{
	struct guardrail_slot_change change = { .domain = domain, .mask = 0xff, .right = right, .keep_objects = keep_objects };
	unsigned long tag = tag_of(p), last = tag_of(p + n - 1);

	if (!((p | n) % GUARDRAIL_SLOT) && !((tag ^ last) & PAGE_MASK) && tag_peek(tag) >= 0)
		return change_tags(tag, last, &change);
	return change_range(p, n, &change);
}

static __always_inline int range_change(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects)
{
	unsigned long tag = tag_of(p), last, next;
	u64 writable, to;

	if (!n)
		return 0;
	if (!is_domain(domain) || !is_kernel_range(p, n))
		return -EINVAL;
	last = tag_of(p + n - 1);
	/* Nearly all ranges are whole slots in one page of the table that begin at a multiple of 64 bytes. */
	if (unlikely((p | n) % GUARDRAIL_SLOT || tag % 8 || (tag ^ last) & PAGE_MASK || tag_peek(tag) < 0))
		return change_rest(domain, p, n, right, keep_objects);
	writable = EIGHT(WRITABLE(domain));
	to = right == GUARDRAIL_WRITE ? writable : 0;
	next = change_alike(tag, last, writable ^ to, to);
	if (next > last)
		return 0;
	n -= (next - tag) * GUARDRAIL_SLOT;
	return change_rest(domain, p + (next - tag) * GUARDRAIL_SLOT, n, right, keep_objects);
}

int guardrail_range_change(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects)
{
	return range_change(domain, p, n, right, keep_objects);
}

int guardrail_grant_fresh(u32 domain, unsigned long p, unsigned long n)
{
	return range_change(domain, p, n, GUARDRAIL_WRITE, false);
}
EXPORT_SYMBOL_GPL(guardrail_grant_fresh);

int guardrail_grant(u32 domain, unsigned long p, unsigned long n)
{
	return range_change(domain, p, n, GUARDRAIL_WRITE, true);
}
EXPORT_SYMBOL_GPL(guardrail_grant);

int guardrail_revoke(u32 domain, unsigned long p, unsigned long n)
{
	return range_change(domain, p, n, GUARDRAIL_READ, false);
}
EXPORT_SYMBOL_GPL(guardrail_revoke);

int guardrail_grant_call(u32 domain, unsigned long p)
{
	struct guardrail_slot_change change = {
		.domain = domain, .mask = slot_mask(p, p + 1), .right = GUARDRAIL_CALL,
	};
	int err;

	if (!is_domain(domain) || !is_kernel_range(p, 1))
		return -EINVAL;
	err = guardrail_populate(tag_of(p), tag_of(p));
	return err ?: change_slot(tag_of(p), &change);
}
EXPORT_SYMBOL_GPL(guardrail_grant_call);

/* Finds the first byte in @mask that the domain may not write, or -1. */
static int denied_in_slot(unsigned long tag, u32 domain, u8 mask)
{
	u8 rights[GUARDRAIL_SLOT];
	int i;

	if (guardrail_slot_holds(tag, domain, mask, GUARDRAIL_WRITE))
		return -1;
	if (tag_peek(tag) >= 0)
		guardrail_slot_rights(tag, domain, rights);
	else
		memset(rights, GUARDRAIL_READ, sizeof(rights));
	for (i = 0; i < GUARDRAIL_SLOT; i++)
		if (mask & 1 << i && !right_writes(rights[i]))
			return i;
	return -1;
}

unsigned long guardrail_first_denied(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long tag, last, end = p + n;

	if (!n)
		return end;
	if (!is_domain(domain) || p < KERNEL_HALF)
		return p;
	/* User memory follows the last byte of the address space; no domain may write it. */
	if (end - 1 < p)
		return guardrail_first_denied(domain, p, -p);
	tag = tag_of(p);
	last = tag_of(end - 1);
	while (tag <= last) {
		unsigned long stop = page_end(tag, last + 1);
		bool there = tag_peek(tag) >= 0;

		while (tag < stop) {
			unsigned long slot = slot_of(tag);
			u8 mask;
			int byte;

			if (there && stop - tag >= 8 && READ_ONCE(*(u64 *)tag) == EIGHT(WRITABLE(domain))) {
				tag += 8;
				continue;
			}
			if (there && READ_ONCE(*(u8 *)tag) == WRITABLE(domain)) {
				tag++;
				continue;
			}
			mask = slot_mask(max(slot, p), end);
			byte = denied_in_slot(tag, domain, mask);
			if (byte >= 0 && guardrail_buffer_grant(domain, slot + byte))
				continue;
			if (byte >= 0)
				return slot + byte;
			tag++;
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
	unsigned long tag, last;

	if (!is_domain(domain) || !is_kernel_range(p, n))
		return 0;
	last = tag_of(p + n - 1);
	for (tag = tag_of(p); tag <= last; tag++) {
		int value = tag_peek(tag);
		u8 rights[GUARDRAIL_SLOT];
		u8 mask;
		int i;

		if (value < 0) {
			tag = page_end(tag, last + 1) - 1;
			continue;
		}
		if (!value || value == WRITABLE(domain))
			continue;
		mask = slot_mask(max(slot_of(tag), p), p + n);
		guardrail_slot_rights(tag, domain, rights);
		for (i = 0; i < GUARDRAIL_SLOT; i++)
			if (mask & 1 << i && right_objects(rights[i]))
				return slot_of(tag) + i;
	}
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_find_object);
