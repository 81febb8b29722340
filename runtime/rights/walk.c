// SPDX-License-Identifier: GPL-2.0-or-later
/* All that a domain holds: listed from the table and the records, or revoked. */
#include <linux/skbuff.h>

#include "rights/buffer.h"
#include "rights/conflict.h"
#include "rights/kinds.h"
#include "rights/mask.h"
#include "rights/object.h"
#include "rights/table.h"
#include "rights/walk.h"

/**
 * struct walk - A walk over what a domain holds.
 * @held: What the walk reports next, as far as it is known; a length of 0 is nothing yet.
 * @each: Function that it reports to.
 * @data: Passed to @each.
 */
struct walk {
	struct guardrail_held held;
	int (*each)(const struct guardrail_held *held, void *data);
	void *data;
};

static int report(struct walk *walk)
{
	struct guardrail_held held = walk->held;

	walk->held.len = 0;
	return held.len ? walk->each(&held, walk->data) : 0;
}

/* Adds a writable range. */
static int report_writable(struct walk *walk, unsigned long p, unsigned long n)
{
	int err = 0;

	if (walk->held.len && walk->held.start + walk->held.len != p)
		err = report(walk);
	if (!walk->held.len) {
		walk->held.start = p;
		walk->held.right = GUARDRAIL_WRITE;
	}
	walk->held.len += n;
	return err;
}

/* Reports a buffer of which nothing is granted yet, if it begins there. */
static int report_buffer(struct walk *walk, unsigned long p)
{
	struct guardrail_range range;
	int err = report(walk);

	if (err || !guardrail_buffer_owned(walk->held.domain, p, &range) || range.start != p)
		return err;
	walk->held.start = range.start;
	walk->held.len = range.len;
	walk->held.right = GUARDRAIL_OWNER;
	walk->held.type = GUARDRAIL_KIND_FRAG;
	err = report(walk);
	walk->held.type = 0;
	return err;
}

static int report_slot(struct walk *walk, unsigned long tag)
{
	u8 rights[GUARDRAIL_SLOT];
	int i, err = 0;

	guardrail_slot_rights(tag, walk->held.domain, rights);
	for (i = 0; i < GUARDRAIL_SLOT && !err; i++) {
		if (right_writes(rights[i])) {
			err = report_writable(walk, slot_of(tag) + i, 1);
		} else if (rights[i] == GUARDRAIL_CALL) {
			err = report(walk);
			walk->held.start = slot_of(tag) + i;
			walk->held.len = 1;
			walk->held.right = GUARDRAIL_CALL;
			err = err ?: report(walk);
		} else if (rights[i] == GUARDRAIL_SKB) {
			err = report(walk);
			walk->held.start = slot_of(tag) + i;
			walk->held.len = sizeof(struct sk_buff);
			walk->held.right = GUARDRAIL_OBJECT;
			walk->held.type = GUARDRAIL_TYPE_SKB;
			err = err ?: report(walk);
			walk->held.type = 0;
		} else if (rights[i] == GUARDRAIL_OWNER) {
			err = err ?: report_buffer(walk, slot_of(tag));
		}
	}
	return err;
}

static int report_page(unsigned long page, void *data)
{
	struct walk *walk = data;
	u8 domain = walk->held.domain;
	unsigned long tag = page;
	int err = 0;

	while (tag < page + PAGE_SIZE && !err) {
		u64 value = READ_ONCE(*(u64 *)tag);
		unsigned long next = tag + 8;

		if (value == EIGHT(WRITABLE(domain)))
			err = report_writable(walk, slot_of(tag), 8 * GUARDRAIL_SLOT);
		else if (value)
			for (; tag < next && !err; tag++) {
				u8 one = READ_ONCE(*(u8 *)tag);

				if (one == GUARDRAIL_CONFLICT || one >> 4 == domain)
					err = report_slot(walk, tag);
			}
		tag = next;
	}
	return err;
}

int guardrail_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data)
{
	struct walk walk = { .held.domain = domain, .each = each, .data = data };
	int err;

	if (!is_domain(domain))
		return -EINVAL;
	err = guardrail_each_page(report_page, &walk);
	err = err ?: report(&walk);
	return err ?: guardrail_objects_walk(domain, each, data);
}
EXPORT_SYMBOL_GPL(guardrail_walk);

static int count(const struct guardrail_held *held, void *data)
{
	struct guardrail_held_counts *counts = data;

	switch (held->right) {
	case GUARDRAIL_WRITE:
		counts->ranges++;
		counts->bytes += held->len;
		break;
	case GUARDRAIL_CALL:
		counts->targets++;
		break;
	case GUARDRAIL_OBJECT:
		counts->objects++;
		break;
	case GUARDRAIL_OWNER:
		counts->owned++;
		counts->owned_bytes += held->len;
		break;
	}
	return 0;
}

void guardrail_count_held(u32 domain, struct guardrail_held_counts *counts)
{
	memset(counts, 0, sizeof(*counts));
	guardrail_walk(domain, count, counts);
}

static int clear_page_of(unsigned long page, void *data)
{
	u32 domain = *(u32 *)data;
	unsigned long tag;

	for (tag = page; tag < page + PAGE_SIZE; tag++) {
		u8 value;

		if (!(tag % 8) && !READ_ONCE(*(u64 *)tag)) {
			tag += 7;
			continue;
		}
		value = READ_ONCE(*(u8 *)tag);
		if (value != GUARDRAIL_CONFLICT && value >> 4 == domain)
			cmpxchg((u8 *)tag, value, 0);
	}
	return 0;
}

void guardrail_revoke_all(u32 domain)
{
	if (!is_domain(domain))
		return;
	/* Clear the nodes first: what they leave of this domain would return to the table. */
	guardrail_conflict_forget(domain);
	guardrail_each_page(clear_page_of, &domain);
	guardrail_objects_forget_all(domain);
	guardrail_masks_forget(domain);
}
EXPORT_SYMBOL_GPL(guardrail_revoke_all);
