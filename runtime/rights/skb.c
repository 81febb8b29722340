// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Packets; rights/skb.h describes them. The table alone shows where they are, without a record and its lock. Each
 * packet begins and ends once, so all of its tags change at once where they are as expected.
 */
#include <linux/skbuff.h>
#include <linux/spinlock.h>

#include "rights/conflict.h"
#include "rights/fields.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "rights/sent.h"
#include "rights/skb.h"
#include "rights/table.h"

/* Words behind this one may belong to others in part, as the first may. */
#define WHOLE (SKB_SLOTS / 8 - 1)

struct guardrail_skb_shape guardrail_skb_shapes[GUARDRAIL_DOMAINS][8];
/*
 * Protects changes of guardrail_skb_shapes. Readers take no lock: they see the fields of a shape after its tags. Taken in
 * any context but NMI. The lock of masks nests inside.
 */
static DEFINE_SPINLOCK(lock);

static struct guardrail_skb_shape *shape_of(u32 domain, unsigned long p)
{
	return &guardrail_skb_shapes[domain][p / GUARDRAIL_SLOT % 8];
}

bool guardrail_is_skb_slowly(u32 domain, unsigned long p)
{
	return is_domain(domain) && is_kernel_range(p, SKB_SIZE) &&
	       guardrail_slot_holds(tag_of(p), domain, slot_mask(p, p + 1), GUARDRAIL_SKB);
}

/* Learns the shape of the domain's packets with these fields, unless another is known. */
static noinline bool learn(struct guardrail_skb_shape *shape, u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	u8 first = p / GUARDRAIL_SLOT % 8, *tags = (u8 *)shape->words + first;
	unsigned long flags;
	bool known = false;

	spin_lock_irqsave(&lock, flags);
	if (!shape->fields || shape->version != guardrail_masks_version(domain)) {
		WRITE_ONCE(shape->fields, NULL);
		smp_wmb();
		memset(shape->words, 0, sizeof(shape->words));
		memset(shape->whole, 0, sizeof(shape->whole));
		known = guardrail_fields_tags(domain, p, fields, n, tags, SKB_SLOTS) && !*tags;
		*tags = skb_tag(domain);
		memset((u8 *)shape->whole + first, 0xff, SKB_SLOTS);
		shape->version = guardrail_masks_version(domain);
		if (known)
			smp_store_release(&shape->fields, fields);
	}
	spin_unlock_irqrestore(&lock, flags);
	return known;
}

/*
 * Exchanges one word of tags; some of its tags may be of others. A word without tags of the packet may have no memory.
 */
static __always_inline bool exchange_word(const struct guardrail_skb_shape *shape, unsigned int i, u64 *word, bool begins)
{
	u64 whole = shape->whole[i], frames = shape->words[i], old;

	if (!whole)
		return true;
	old = READ_ONCE(word[i]);
	return (old & whole) == (begins ? 0 : frames) && cmpxchg(&word[i], old, old ^ frames) == old;
}

/*
 * Sets or clears all tags of a packet. False where one was not as expected; some may have changed then. The first word
 * changes last, since it has the mark.
 */
static __always_inline bool exchange(const struct guardrail_skb_shape *shape, unsigned long p, bool begins)
{
	u64 *word = (u64 *)(tag_of(p) & ~7UL);
	unsigned int i;

	for (i = SKB_WORDS - 1; i > WHOLE; i--)
		if (unlikely(!exchange_word(shape, i, word, begins)))
			return false;
#pragma GCC unroll 8
	for (; i > 0; i--) {
		if (unlikely(READ_ONCE(word[i]) != (begins ? 0 : shape->words[i])))
			return false;
		WRITE_ONCE(word[i], begins ? shape->words[i] : 0);
	}
	return exchange_word(shape, 0, word, begins);
}

/* True where the packet's tags can be exchanged in words, and have memory. */
static __always_inline bool is_plain(u32 domain, unsigned long p)
{
	return is_domain(domain) && is_kernel_range(p, SKB_SIZE) && !(p % GUARDRAIL_SLOT) &&
	       !((tag_of(p) ^ tag_of(p + SKB_SIZE - 1)) & PAGE_MASK) && tag_peek(tag_of(p)) >= 0;
}

/* Begins a packet where something else is, or while no shape is known. */
static noinline int begin_slowly(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	struct guardrail_slot_change change = { .domain = domain, .mask = slot_mask(p, p + 1), .right = GUARDRAIL_SKB };
	int err;

	if (!is_domain(domain) || !is_kernel_range(p, SKB_SIZE))
		return -EINVAL;
	err = populate(tag_of(p), tag_of(p + SKB_SIZE - 1));
	if (err)
		return err;
	if (n && !(p % GUARDRAIL_SLOT) && !skb_shape(domain, p / GUARDRAIL_SLOT % 8, NULL))
		learn(shape_of(domain, p), domain, p, fields, n);
	guardrail_object_forget(domain, p);
	err = guardrail_range_change(domain, p, SKB_SIZE, GUARDRAIL_READ, true);
	err = err ?: guardrail_slot_change(tag_of(p), &change);
	return err ?: n ? guardrail_fields_change(domain, p, fields, n, GUARDRAIL_WRITE) : 0;
}

int guardrail_skb_begins(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	const struct guardrail_skb_shape *shape = n && is_plain(domain, p) ? skb_shape(domain, p / GUARDRAIL_SLOT % 8, fields) : NULL;

	return shape && exchange(shape, p, true) ? 0 : begin_slowly(domain, p, fields, n);
}

bool guardrail_destroy_skb(u32 domain, unsigned long p)
{
	const struct guardrail_skb_shape *shape = is_plain(domain, p) ? skb_shape(domain, p / GUARDRAIL_SLOT % 8, NULL) : NULL;
	bool was;

	sent_ends(domain, (struct sk_buff *)p);
	if (shape && exchange(shape, p, false))
		return true;
	was = guardrail_is_skb(domain, p);
	guardrail_range_change(domain, p, SKB_SIZE, GUARDRAIL_READ, false);
	return was;
}
EXPORT_SYMBOL_GPL(guardrail_destroy_skb);

int guardrail_skb_mark(u32 domain, unsigned long p, bool begins)
{
	struct guardrail_slot_change change = { .domain = domain, .mask = slot_mask(p, p + 1), .right = begins ? GUARDRAIL_SKB : GUARDRAIL_READ };
	u8 from = begins ? 0 : skb_tag(domain), to = skb_tag(domain) ^ from;
	int err;

	if (begins == guardrail_is_skb(domain, p))
		return begins ? -EEXIST : -ENOENT;
	err = populate(tag_of(p), tag_of(p));
	if (err || (!(p % GUARDRAIL_SLOT) && cmpxchg((u8 *)tag_of(p), from, to) == from))
		return err;
	return guardrail_slot_change(tag_of(p), &change);
}

void guardrail_skbs_forget(const struct module *module)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < GUARDRAIL_DOMAINS * 8; i++) {
		struct guardrail_skb_shape *shape = &guardrail_skb_shapes[i / 8][i % 8];

		if (within_module((unsigned long)shape->fields, module))
			WRITE_ONCE(shape->fields, NULL);
	}
	spin_unlock_irqrestore(&lock, flags);
}
