/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Network frames (skb.c): what is done for each packet is inlined. */
#ifndef GUARDRAIL_SKB_H
#define GUARDRAIL_SKB_H

#include <linux/skbuff.h>

#include "border/action.h"

#define SKB_SIZE sizeof(struct sk_buff)
#define SKB_SLOTS ((SKB_SIZE - 1) / GUARDRAIL_SLOT + 1)
/* The words that the entries of one may lie in. */
#define SKB_WORDS ((SKB_SLOTS + 6) / 8 + 1)
/* Of one at a multiple of 64 bytes, as nearly all are: its words, and what it has of the last. */
#define SKB_OWN_WORDS ((SKB_SLOTS + 7) / 8)
#define SKB_LAST_PART (~0ULL >> 8 * (8 * SKB_OWN_WORDS - SKB_SLOTS))

/* The entries of a domain's frames that begin at a certain slot of a word of eight, with their fields. */
struct skb_shape {
	const struct guardrail_field *fields;	/* NULL where nothing is known yet */
	u32 version;				/* of the domain's masks */
	u64 words[SKB_WORDS];
	u64 whole[SKB_WORDS];			/* all bits of the entries that are the frame's */
};
extern struct skb_shape guardrail_skb_shapes[GUARDRAIL_DOMAINS][8];

/* The shape that is known of frames of the domain with these fields, or with any where none are said; NULL where nothing is. */
static __always_inline const struct skb_shape *skb_shape(u32 domain, unsigned int first, const struct guardrail_field *fields)
{
	const struct skb_shape *shape = &guardrail_skb_shapes[domain][first];
	const struct guardrail_field *its;

	/* The compiler would work the address out again and again. */
	OPTIMIZER_HIDE_VAR(shape);
	its = smp_load_acquire(&shape->fields);
	return likely((fields ? its == fields : !!its) && shape->version == guardrail_masks_version(domain)) ? shape : NULL;
}

/*
 * All entries of a frame become its, or nobody's, if it lies at a multiple of 64 bytes and they are the other; false where one was not, and some may
 * have become so. The first word is the last, since the mark is in it.
 */
static __always_inline bool skb_exchange(u32 domain, unsigned long p, const struct guardrail_field *fields, bool begins)
{
	unsigned long entry = entry_of(p), last = SKB_OWN_WORDS - 1, old;
	const struct skb_shape *shape;
	u64 *word = (u64 *)entry;
	int i;

	if (unlikely(!is_domain(domain) || p % (8 * GUARDRAIL_SLOT) || p < KERNEL_HALF ||
		     (entry ^ (entry + SKB_SLOTS - 1)) & PAGE_MASK))
		return false;
	shape = skb_shape(domain, 0, fields);
	/* There may be no entries. */
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

/* Of what lies there, wherever that is, only these fields may be written from now on, if there are any. A list of fields is known by its address. */
int guardrail_skb_begins(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n);

static __always_inline bool skb_goes(u32 domain, unsigned long p)
{
	return likely(skb_exchange(domain, p, NULL, false)) || guardrail_skb_goes(domain, p);
}

#endif /* GUARDRAIL_SKB_H */
