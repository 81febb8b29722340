// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which bytes of a slot an entry lets be written. Besides wholes and halves, each domain has a few sets of bytes of its own, masks, that are
 * given out when they are first needed. The kernel's structures need few: fields of one or two bytes lie at the same places of many slots.
 */
#include <linux/spinlock.h>

#include "internal.h"

/* By entry; nothing for GUARDRAIL_CONFLICT. */
u8 guardrail_writes[256];
/* By domain and set of bytes: the entry, or 0. */
static u8 entries[GUARDRAIL_DOMAINS][256];
static u8 n_given[GUARDRAIL_DOMAINS];
u32 guardrail_masks_versions[GUARDRAIL_DOMAINS];
static DEFINE_SPINLOCK(lock);

u8 guardrail_mask_entry(u32 domain, u8 mask, unsigned int most)
{
	u8 entry = READ_ONCE(entries[domain][mask]);
	unsigned long flags;

	if (entry || !mask)
		return entry;
	spin_lock_irqsave(&lock, flags);
	entry = entries[domain][mask];
	if (!entry && n_given[domain] < most) {
		entry = GUARDRAIL_ENTRY(domain, GUARDRAIL_MASK + n_given[domain]);
		WRITE_ONCE(n_given[domain], n_given[domain] + 1);
		WRITE_ONCE(guardrail_writes[entry], mask);
		/* Whoever finds the entry knows what it says. */
		smp_store_release(&entries[domain][mask], entry);
	}
	spin_unlock_irqrestore(&lock, flags);
	return entry ?: GUARDRAIL_CONFLICT;
}

/* The domain has nothing in the table, and its masks are free for what comes. */
void guardrail_masks_forget(u32 domain)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < n_given[domain]; i++) {
		u8 entry = GUARDRAIL_ENTRY(domain, GUARDRAIL_MASK + i);

		WRITE_ONCE(entries[domain][guardrail_writes[entry]], 0);
		WRITE_ONCE(guardrail_writes[entry], 0);
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
		guardrail_writes[GUARDRAIL_ENTRY(domain, GUARDRAIL_WRITE_LOW)] = 0x0f;
		guardrail_writes[GUARDRAIL_ENTRY(domain, GUARDRAIL_WRITE_HIGH)] = 0xf0;
		guardrail_writes[GUARDRAIL_ENTRY(domain, GUARDRAIL_OBJECT_WRITE)] = 0xff;
		entries[domain][0xff] = WRITABLE(domain);
		entries[domain][0x0f] = GUARDRAIL_ENTRY(domain, GUARDRAIL_WRITE_LOW);
		entries[domain][0xf0] = GUARDRAIL_ENTRY(domain, GUARDRAIL_WRITE_HIGH);
	}
}
