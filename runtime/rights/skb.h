/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Packets (struct sk_buff): objects without a record, of one type, size and state. A tag of its own
 * marks the begin of each. Code that runs for every packet is inlined.
 */
#ifndef GUARDRAIL_RIGHTS_SKB_H
#define GUARDRAIL_RIGHTS_SKB_H

#include <linux/skbuff.h>

#include "rights/mask.h"
#include "rights/tag.h"

#define SKB_SIZE sizeof(struct sk_buff)
#define SKB_SLOTS ((SKB_SIZE - 1) / GUARDRAIL_SLOT + 1)
/* The words that the tags of a packet may lie in. */
#define SKB_WORDS ((SKB_SLOTS + 6) / 8 + 1)
/* The words of a packet at a multiple of 64 bytes, as nearly all are, and its part of the last one. */
#define SKB_OWN_WORDS ((SKB_SLOTS + 7) / 8)
#define SKB_LAST_PART (~0ULL >> 8 * (8 * SKB_OWN_WORDS - SKB_SLOTS))

/**
 * struct guardrail_skb_shape - The tags of a domain's packets that begin at one slot of a word of eight.
 * @fields: List of the fields that the domain may write; NULL while the shape is unknown.
 * @version: Version of the domain's masks that the tags are from.
 * @words: The tags.
 * @whole: All bits of the tags that are the packet's.
 */
struct guardrail_skb_shape {
	const struct guardrail_field *fields;
	u32 version;
	u64 words[SKB_WORDS];
	u64 whole[SKB_WORDS];
};

/* By domain and first slot. */
extern struct guardrail_skb_shape guardrail_skb_shapes[GUARDRAIL_DOMAINS][8];

/**
 * skb_tag() - The tag that marks the begin of a packet.
 * @domain: Domain that holds it.
 *
 * Return: The tag.
 */
static inline u8 skb_tag(u32 domain)
{
	return GUARDRAIL_TAG(domain, GUARDRAIL_SKB);
}

/**
 * guardrail_is_skb_slowly() - Test for a packet, wherever it lies.
 * @domain: Domain that may hold it.
 * @p: Address to test.
 *
 * Context: Any but NMI.
 * Return: True where a packet begins there.
 */
bool guardrail_is_skb_slowly(u32 domain, unsigned long p);

/**
 * is_usual_skb() - Test for a packet that its tag alone shows, as nearly all do.
 * @domain: Domain that may hold it.
 * @p: Address to test.
 *
 * Return: True where one begins there; false decides nothing.
 */
static __always_inline bool is_usual_skb(u32 domain, unsigned long p)
{
	return p >= KERNEL_HALF && !(p % GUARDRAIL_SLOT) && tag_peek(tag_of(p)) == skb_tag(domain);
}

/**
 * guardrail_is_skb() - Test for a packet.
 * @domain: Domain that may hold it.
 * @p: Address to test.
 *
 * Context: Any but NMI.
 * Return: True where one begins there.
 */
static inline bool guardrail_is_skb(u32 domain, unsigned long p)
{
	return likely(is_usual_skb(domain, p)) || guardrail_is_skb_slowly(domain, p);
}

/**
 * guardrail_skb_mark() - Mark or unmark the begin of a packet.
 * @domain: Domain that holds it.
 * @p: Begin of the packet.
 * @begins: Whether to mark it.
 *
 * The right to write stays as it is.
 *
 * Context: Any but NMI.
 * Return: 0; -EEXIST or -ENOENT where it is so already; -ENOMEM.
 */
int guardrail_skb_mark(u32 domain, unsigned long p, bool begins);

/**
 * guardrail_skb_begins() - Make a packet, in which the domain may write some fields.
 * @domain: Domain that gets it.
 * @p: Begin of the packet.
 * @fields: List of the fields, known by its address.
 * @n: Length of the list; 0 for none.
 *
 * Context: Any but NMI.
 * Return: 0, -EINVAL or -ENOMEM.
 */
int guardrail_skb_begins(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n);

/**
 * guardrail_skbs_forget() - Forget the lists of a module that is unloaded.
 * @module: The module.
 *
 * Context: Any but NMI.
 */
void guardrail_skbs_forget(const struct module *module);

/**
 * skb_shape() - Find the shape of a domain's packets.
 * @domain: The domain.
 * @first: Slot of a word of eight that the packets begin at.
 * @fields: List that the shape must be from; NULL for any.
 *
 * Return: The shape, or NULL while it is unknown.
 */
static __always_inline const struct guardrail_skb_shape *skb_shape(u32 domain, unsigned int first, const struct guardrail_field *fields)
{
	const struct guardrail_skb_shape *shape = &guardrail_skb_shapes[domain][first];
	const struct guardrail_field *its;

	/* The compiler would compute the address again and again. */
	OPTIMIZER_HIDE_VAR(shape);
	its = smp_load_acquire(&shape->fields);
	return likely((fields ? its == fields : !!its) && shape->version == guardrail_masks_version(domain)) ? shape : NULL;
}

/**
 * skb_exchange() - Set or clear all tags of a packet at once.
 * @domain: Domain that gets or loses it.
 * @p: Begin of the packet.
 * @fields: List of the fields that it may write; NULL for any.
 * @begins: Whether the domain gets it.
 *
 * The first word changes last, since it has the mark.
 *
 * Return: False where the packet is not at a multiple of 64 bytes, or a tag was not as expected. Some tags may have
 * changed then.
 */
static __always_inline bool skb_exchange(u32 domain, unsigned long p, const struct guardrail_field *fields, bool begins)
{
	unsigned long tag = tag_of(p), last = SKB_OWN_WORDS - 1, old;
	const struct guardrail_skb_shape *shape;
	u64 *word = (u64 *)tag;
	int i;

	if (unlikely(!is_domain(domain) || p % (8 * GUARDRAIL_SLOT) || p < KERNEL_HALF ||
		     (tag ^ (tag + SKB_SLOTS - 1)) & PAGE_MASK))
		return false;
	shape = skb_shape(domain, 0, fields);
	/* There may be no tags. */
	if (unlikely(!shape || !load_word((unsigned long)&word[last], &old) || (old & SKB_LAST_PART) != (begins ? 0 : shape->words[last]) ||
		     cmpxchg(&word[last], old, old ^ shape->words[last]) != old))
		return false;
#pragma GCC unroll 8
	for (i = last - 1; i >= 0; i--) {
		if (unlikely(READ_ONCE(word[i]) != (begins ? 0 : shape->words[i])))
			return false;
		WRITE_ONCE(word[i], begins ? shape->words[i] : 0);
	}
	return true;
}

/**
 * skb_goes() - Take a packet from a domain.
 * @domain: Domain that holds it.
 * @p: Begin of the packet.
 *
 * Context: Any but NMI.
 * Return: False where it held none there.
 */
static __always_inline bool skb_goes(u32 domain, unsigned long p)
{
	return likely(skb_exchange(domain, p, NULL, false)) || guardrail_destroy_skb(domain, p);
}

#endif /* GUARDRAIL_RIGHTS_SKB_H */
