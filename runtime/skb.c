// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Network frames: objects of one type, size and state, of which the table alone says where they are, without a record and its lock. One comes
 * or goes with each packet, so all of its entries change at once where they are what they nearly always are.
 */
#include <linux/skbuff.h>
#include <linux/spinlock.h>

#include "internal.h"

#define SIZE sizeof(struct sk_buff)
#define SLOTS ((SIZE - 1) / GUARDRAIL_SLOT + 1)
/* The words that they may lie in; the first and those behind WHOLE may be others' in part. */
#define WORDS ((SLOTS + 6) / 8 + 1)
#define WHOLE (SLOTS / 8 - 1)

/* The entries of a domain's frames that begin at a certain slot of a word of eight, with their fields. */
static struct shape {
	const struct guardrail_field *fields;	/* NULL where nothing is known yet */
	u32 n_fields;
	u32 version;				/* of the domain's masks */
	u64 words[WORDS];
	u64 whole[WORDS];			/* all bits of the entries that are the frame's */
} shapes[GUARDRAIL_DOMAINS][8];
static DEFINE_SPINLOCK(lock);

static struct shape *shape_of(u32 domain, unsigned long p)
{
	return &shapes[domain][p / GUARDRAIL_SLOT % 8];
}

bool guardrail_is_skb_slowly(u32 domain, unsigned long p)
{
	return is_domain(domain) && is_kernel_range(p, SIZE) &&
	       guardrail_slot_holds(entry_of(p), domain, slot_mask(p, p + 1), GUARDRAIL_SKB);
}

/* Notes how frames of the domain look that have these fields, unless others are known. */
static noinline bool learn(struct shape *shape, u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	u8 first = p / GUARDRAIL_SLOT % 8, *entries = (u8 *)shape->words + first;
	unsigned long flags;
	bool known = false;

	spin_lock_irqsave(&lock, flags);
	if (!shape->fields || shape->version != guardrail_masks_version(domain)) {
		WRITE_ONCE(shape->fields, NULL);
		smp_wmb();
		memset(shape->words, 0, sizeof(shape->words));
		memset(shape->whole, 0, sizeof(shape->whole));
		known = guardrail_fields_entries(domain, p, fields, n, entries, SLOTS) && !*entries;
		*entries = skb_entry(domain);
		memset((u8 *)shape->whole + first, 0xff, SLOTS);
		shape->n_fields = n;
		shape->version = guardrail_masks_version(domain);
		if (known)
			smp_store_release(&shape->fields, fields);
	}
	spin_unlock_irqrestore(&lock, flags);
	return known;
}

static __always_inline bool is_known(const struct shape *shape, u32 domain)
{
	return smp_load_acquire(&shape->fields) && shape->version == guardrail_masks_version(domain);
}

/* One word of entries; those of it that are not the frame's are others', and where none are its page may have no memory. */
static __always_inline bool exchange_word(const struct shape *shape, unsigned int i, u64 *word, bool begins)
{
	u64 whole = shape->whole[i], frames = shape->words[i], old;

	if (!whole)
		return true;
	old = READ_ONCE(word[i]);
	return (old & whole) == (begins ? 0 : frames) && cmpxchg(&word[i], old, old ^ frames) == old;
}

/*
 * All entries become the frame's, or nobody's, if they are the other; false where one was not, and some may have become so. The first word is the
 * last, since the mark is in it.
 */
static __always_inline bool exchange(const struct shape *shape, unsigned long p, bool begins)
{
	u64 *word = (u64 *)(entry_of(p) & ~7UL);
	unsigned int i;

	for (i = WORDS - 1; i > WHOLE; i--)
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

/* True where frames can be exchanged in words, and there are entries. */
static __always_inline bool is_plain(u32 domain, unsigned long p)
{
	return is_domain(domain) && is_kernel_range(p, SIZE) && !(p % GUARDRAIL_SLOT) &&
	       !((entry_of(p) ^ entry_of(p + SIZE - 1)) & PAGE_MASK) && entry_peek(entry_of(p)) >= 0;
}

/* The same where something else is there, or nothing is known yet. */
static noinline int begin_slowly(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	struct slot_change change = { .domain = domain, .mask = slot_mask(p, p + 1), .right = GUARDRAIL_SKB };
	int err;

	if (!is_domain(domain) || !is_kernel_range(p, SIZE))
		return -EINVAL;
	err = populate(entry_of(p), entry_of(p + SIZE - 1));
	if (err)
		return err;
	if (n && !(p % GUARDRAIL_SLOT) && !is_known(shape_of(domain, p), domain))
		learn(shape_of(domain, p), domain, p, fields, n);
	guardrail_object_forget(domain, p);
	err = guardrail_range_change(domain, p, SIZE, GUARDRAIL_READ, true);
	err = err ?: guardrail_slot_change(entry_of(p), &change);
	return err ?: n ? guardrail_fields_change(domain, p, fields, n, GUARDRAIL_WRITE) : 0;
}

int guardrail_skb_begins(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	if (likely(n && is_plain(domain, p))) {
		const struct shape *shape = shape_of(domain, p);

		/* The compiler would work the address out again and again. */
		OPTIMIZER_HIDE_VAR(shape);
		if (likely(is_known(shape, domain) && shape->fields == fields && shape->n_fields == n && exchange(shape, p, true)))
			return 0;
	}
	return begin_slowly(domain, p, fields, n);
}

static noinline bool goes_slowly(u32 domain, unsigned long p)
{
	bool was = guardrail_is_skb(domain, p);

	guardrail_range_change(domain, p, SIZE, GUARDRAIL_READ, false);
	return was;
}

bool guardrail_skb_goes(u32 domain, unsigned long p)
{
	if (likely(is_plain(domain, p))) {
		const struct shape *shape = shape_of(domain, p);

		/* The compiler would work the address out again and again. */
		OPTIMIZER_HIDE_VAR(shape);
		if (likely(is_known(shape, domain) && exchange(shape, p, false)))
			return true;
	}
	return goes_slowly(domain, p);
}
EXPORT_SYMBOL_GPL(guardrail_skb_goes);

int guardrail_skb_mark(u32 domain, unsigned long p, bool begins)
{
	struct slot_change change = { .domain = domain, .mask = slot_mask(p, p + 1), .right = begins ? GUARDRAIL_SKB : GUARDRAIL_READ };
	u8 from = begins ? 0 : skb_entry(domain), to = skb_entry(domain) ^ from;
	int err;

	if (begins == guardrail_is_skb(domain, p))
		return begins ? -EEXIST : -ENOENT;
	err = populate(entry_of(p), entry_of(p));
	if (err || (!(p % GUARDRAIL_SLOT) && cmpxchg((u8 *)entry_of(p), from, to) == from))
		return err;
	return guardrail_slot_change(entry_of(p), &change);
}

/* A module goes, and its lists with it. */
void guardrail_skbs_forget(const struct module *module)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < ARRAY_SIZE(shapes) * ARRAY_SIZE(shapes[0]); i++) {
		struct shape *shape = &shapes[i / ARRAY_SIZE(shapes[0])][i % ARRAY_SIZE(shapes[0])];

		if (within_module((unsigned long)shape->fields, module))
			WRITE_ONCE(shape->fields, NULL);
	}
	spin_unlock_irqrestore(&lock, flags);
}
