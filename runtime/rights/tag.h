/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Tags: the byte of the rights table that covers a slot of 8 bytes. guardrail_abi.h says what a tag means.
 *
 * Code here calls the address of a tag `tag` and its value `value`.
 */
#ifndef GUARDRAIL_RIGHTS_TAG_H
#define GUARDRAIL_RIGHTS_TAG_H

#include "base/address.h"
#include "base/kernel.h"

/* The address of the tag of address 0, with which all tags are found, whatever guardrail_table is on a CPU. */
extern unsigned long guardrail_tags;

/* A word of eight equal tags. */
#define EIGHT(value) ((u64)(value) * 0x0101010101010101ULL)

/* The tag of a slot that the domain may write as a whole. */
#define WRITABLE(domain) GUARDRAIL_TAG(domain, GUARDRAIL_WRITE)

/**
 * tag_of() - Find the tag of a byte.
 * @p: Address of the byte.
 *
 * Return: Address of its tag, which may have no memory.
 */
static inline unsigned long tag_of(unsigned long p)
{
	return (p >> GUARDRAIL_SLOT_SHIFT) + guardrail_tags;
}

/**
 * slot_of() - Find the slot of a tag.
 * @tag: Address of the tag.
 *
 * Return: Address of the slot's first byte.
 */
static inline unsigned long slot_of(unsigned long tag)
{
	return (tag - guardrail_tags) << GUARDRAIL_SLOT_SHIFT;
}

/**
 * tag_peek() - Read a tag that may have no memory.
 * @tag: Address of the tag.
 *
 * Context: Any.
 * Return: Its value, or -1 where the table has no page.
 */
static inline int tag_peek(unsigned long tag)
{
	int value = -1;

	asm volatile("1:	movzbl (%1), %0\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "+r" (value) : "r" (tag) : "memory");
	return value;
}

/**
 * is_domain() - Test for the number of a domain.
 * @domain: Number to test; 0 is the kernel.
 *
 * Return: True for 1 to GUARDRAIL_DOMAINS - 1.
 */
static inline bool is_domain(u32 domain)
{
	return domain >= 1 && domain < GUARDRAIL_DOMAINS;
}

/**
 * slot_mask() - Find the part of a slot that a range covers.
 * @p: First byte of the range; it lies in the slot.
 * @end: Address behind the range.
 *
 * Return: A bit for each byte of the slot.
 */
static inline u8 slot_mask(unsigned long p, unsigned long end)
{
	unsigned int from = p % GUARDRAIL_SLOT;
	unsigned long to = end - (p - from);

	return (u8)(0xff << from) & (to >= GUARDRAIL_SLOT ? 0xff : (u8)~(0xff << to));
}

/**
 * is_mark() - Test for a right that marks a begin.
 * @right: Right to the first byte of a slot.
 *
 * Return: True where an object, a call target or a buffer begins with the slot.
 */
static inline bool is_mark(u8 right)
{
	return (right >= GUARDRAIL_CALL && right <= GUARDRAIL_OBJECT_WRITE) || right == GUARDRAIL_SKB;
}

/**
 * right_objects() - Test for the first byte of an object.
 * @right: Right to the byte.
 *
 * Return: True where an object begins there.
 */
static inline bool right_objects(u8 right)
{
	return right == GUARDRAIL_OBJECT || right == GUARDRAIL_OBJECT_WRITE || right == GUARDRAIL_SKB;
}

/**
 * right_writes() - Test for the right to write.
 * @right: Right to a byte.
 *
 * Return: True where the byte may be written.
 */
static inline bool right_writes(u8 right)
{
	return right == GUARDRAIL_WRITE || right == GUARDRAIL_OBJECT_WRITE;
}

#endif /* GUARDRAIL_RIGHTS_TAG_H */
