// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Masks; rights/mask.h describes them. The structures of the kernel need few: small fields lie at the same offsets of
 * many slots.
 */
#include <linux/spinlock.h>

#include "rights/mask.h"

/* By tag. A mask that is in use does not change, so readers take no lock. */
u8 guardrail_writes[256];
/* By domain and mask: the tag, or 0. */
static u8 tags[GUARDRAIL_DOMAINS][256];
static u8 n_given[GUARDRAIL_DOMAINS];
u32 guardrail_masks_versions[GUARDRAIL_DOMAINS];
/* Protects tags, n_given, and changes of guardrail_writes. Taken in any context but NMI; nothing nests inside. */
static DEFINE_SPINLOCK(lock);

u8 guardrail_mask_tag(u32 domain, u8 mask, unsigned int most)
{
	u8 tag = READ_ONCE(tags[domain][mask]);
	unsigned long flags;

	if (tag || !mask)
		return tag;
	spin_lock_irqsave(&lock, flags);
	tag = tags[domain][mask];
	if (!tag && n_given[domain] < most) {
		tag = GUARDRAIL_TAG(domain, GUARDRAIL_MASK + n_given[domain]);
		WRITE_ONCE(n_given[domain], n_given[domain] + 1);
		WRITE_ONCE(guardrail_writes[tag], mask);
		/* Publish the tag after its mask. */
		smp_store_release(&tags[domain][mask], tag);
	}
	spin_unlock_irqrestore(&lock, flags);
	return tag ?: GUARDRAIL_CONFLICT;
}

void guardrail_masks_forget(u32 domain)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < n_given[domain]; i++) {
		u8 tag = GUARDRAIL_TAG(domain, GUARDRAIL_MASK + i);

		WRITE_ONCE(tags[domain][guardrail_writes[tag]], 0);
		WRITE_ONCE(guardrail_writes[tag], 0);
	}
	WRITE_ONCE(n_given[domain], 0);
	WRITE_ONCE(guardrail_masks_versions[domain], guardrail_masks_versions[domain] + 1);
	spin_unlock_irqrestore(&lock, flags);
}

unsigned int guardrail_masks_given(u32 domain)
{
	return READ_ONCE(n_given[domain]);
}

void __init guardrail_masks_init(void)
{
	u32 domain;

	for (domain = 1; domain < GUARDRAIL_DOMAINS; domain++) {
		guardrail_writes[WRITABLE(domain)] = 0xff;
		guardrail_writes[GUARDRAIL_TAG(domain, GUARDRAIL_WRITE_LOW)] = 0x0f;
		guardrail_writes[GUARDRAIL_TAG(domain, GUARDRAIL_WRITE_HIGH)] = 0xf0;
		guardrail_writes[GUARDRAIL_TAG(domain, GUARDRAIL_OBJECT_WRITE)] = 0xff;
		tags[domain][0xff] = WRITABLE(domain);
		tags[domain][0x0f] = GUARDRAIL_TAG(domain, GUARDRAIL_WRITE_LOW);
		tags[domain][0xf0] = GUARDRAIL_TAG(domain, GUARDRAIL_WRITE_HIGH);
	}
}
