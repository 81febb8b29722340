/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Masks: the sets of bytes of a slot that a tag can declare writable. Besides the whole slot and its halves, each
 * domain has a few masks of its own. The first slot that needs one gets it a number.
 */
#ifndef GUARDRAIL_RIGHTS_MASK_H
#define GUARDRAIL_RIGHTS_MASK_H

#include "rights/conflict.h"
#include "rights/tag.h"

/* By the value of a tag: the bytes that the domain in it may write. 0 for GUARDRAIL_CONFLICT. */
extern u8 guardrail_writes[256];

/* Changes whenever the domain's masks are forgotten. */
extern u32 guardrail_masks_versions[GUARDRAIL_DOMAINS];

/**
 * guardrail_masks_init() - Enter the masks that every domain has.
 */
void __init guardrail_masks_init(void);

/**
 * guardrail_mask_tag() - Find the tag that declares just these bytes writable.
 * @domain: Domain that may write them.
 * @mask: Bytes of the slot, a bit each.
 * @most: How many masks the domain may have, if this is a new one.
 *
 * Context: Any but NMI.
 * Return: The tag, 0 for no bytes, or GUARDRAIL_CONFLICT where the domain has @most masks and this is not one.
 */
u8 guardrail_mask_tag(u32 domain, u8 mask, unsigned int most);

/**
 * guardrail_masks_forget() - Free the masks of a domain that has no tags.
 * @domain: Domain that holds nothing any more.
 *
 * Context: Any but NMI.
 */
void guardrail_masks_forget(u32 domain);

/**
 * guardrail_masks_given() - Count the masks of a domain.
 * @domain: Domain to count for.
 *
 * Return: The number of its own masks.
 */
unsigned int guardrail_masks_given(u32 domain);

/**
 * guardrail_masks_version() - Read the version of a domain's masks.
 * @domain: Domain to read for.
 *
 * Return: A number that differs after the masks were forgotten.
 */
static inline u32 guardrail_masks_version(u32 domain)
{
	return READ_ONCE(guardrail_masks_versions[domain]);
}

/**
 * guardrail_is_kernels() - Test for memory that no domain may write.
 * @addr: The address.
 *
 * Context: Any.
 * Return: True where no domain has a right in the slot, or only that to a whole object.
 */
static inline bool guardrail_is_kernels(unsigned long addr)
{
	int value = tag_peek(tag_of(addr));

	return value <= 0 || (value != GUARDRAIL_CONFLICT && !guardrail_writes[value]);
}

/**
 * writes_part() - Test for bytes of a slot that the tag alone shows a domain may write.
 * @tag: Address of the slot's tag, which may have no memory.
 * @domain: The domain.
 * @mask: A bit for each of the bytes.
 *
 * Return: True where it may write all of them; false decides nothing.
 */
static __always_inline bool writes_part(unsigned long tag, u32 domain, u8 mask)
{
	int value = tag_peek(tag);

	return value >= 0 && (u32)value >> 4 == domain && !(mask & ~guardrail_writes[value]);
}

#endif /* GUARDRAIL_RIGHTS_MASK_H */
