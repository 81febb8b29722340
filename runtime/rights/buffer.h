/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Large buffers that devices fill. Few drivers write to them, so nothing of one is granted before its domain writes.
 *
 * Until then two marks in the table show the begin and end of the buffer, and its domain. If the
 * domain may release it, the first tag of its first word of eight is marked; if it belongs to a
 * packet, the second is. The last tag of its last word marks its end. So a buffer begins and ends
 * at multiples of 64 bytes, and no other right has tags in its words.
 *
 * A driver receives and passes on one with each packet, so the functions for that are inlined. They
 * take no lock.
 */
#ifndef GUARDRAIL_RIGHTS_BUFFER_H
#define GUARDRAIL_RIGHTS_BUFFER_H

#include "rights/tag.h"

#define BUFFER_WORD (8UL * GUARDRAIL_SLOT)
/* The smallest buffer of a packet, and of the domain's own, which it mostly writes itself. */
#define BUFFER_LEAST 256
#define BUFFER_LEAST_OWN 1536
/* Headers of a packet lie this near to the begin of its buffer. */
#define BUFFER_HEADERS (2 * BUFFER_WORD)
/* No buffer reaches over pages of the table. */
#define BUFFER_MOST (PAGE_SIZE * GUARDRAIL_SLOT)

/**
 * guardrail_buffer_grant() - Grant the buffer that has a byte.
 * @domain: Domain that is about to write.
 * @addr: Address of the byte.
 *
 * All of the buffer becomes plain memory of the domain.
 *
 * Context: Any but NMI.
 * Return: False where no buffer has the byte, or there is no memory.
 */
bool guardrail_buffer_grant(u32 domain, unsigned long addr);

/**
 * guardrail_buffer_owned() - Find the buffer that has a byte, if the domain may release it.
 * @domain: The domain.
 * @addr: Address of the byte.
 * @found: Gets the buffer.
 *
 * Context: Any.
 * Return: False if it does not exist.
 */
bool guardrail_buffer_owned(u32 domain, unsigned long addr, struct guardrail_range *found);

/**
 * buffer_owned() - The first word of a buffer that the domain may release.
 * @domain: The domain.
 *
 * Return: Its eight tags.
 */
static __always_inline u64 buffer_owned(u32 domain)
{
	return GUARDRAIL_TAG(domain, GUARDRAIL_OWNER);
}

/**
 * buffer_of_packet() - The first word of a buffer that belongs to a packet.
 * @domain: The domain.
 *
 * Return: Its eight tags.
 */
static __always_inline u64 buffer_of_packet(u32 domain)
{
	return buffer_owned(domain) << 8;
}

/**
 * buffer_last() - The last word of a buffer.
 * @domain: The domain.
 *
 * Return: Its eight tags.
 */
static __always_inline u64 buffer_last(u32 domain)
{
	return buffer_owned(domain) << 56;
}

/**
 * buffer_exchange() - Change the first and the last word of a buffer, if they are as expected.
 * @p: Begin of the buffer.
 * @n: Its size in bytes.
 * @first: The expected first word.
 * @new_first: What it becomes.
 * @last: The expected last word.
 * @new_last: What it becomes.
 *
 * Return: False where the words differ, or this memory cannot be marked; nothing has changed then.
 */
static __always_inline bool buffer_exchange(unsigned long p, unsigned long n, u64 first, u64 new_first, u64 last, u64 new_last)
{
	u64 *begin = (u64 *)tag_of(p), *end = (u64 *)tag_of(p + n - BUFFER_WORD);
	unsigned long found;

	if (unlikely((p | n) % BUFFER_WORD || n - BUFFER_LEAST > BUFFER_MOST - BUFFER_LEAST || p < KERNEL_HALF ||
		     ((unsigned long)begin ^ (unsigned long)end) & PAGE_MASK))
		return false;
	if (unlikely(!load_word((unsigned long)begin, &found) || found != first || READ_ONCE(*end) != last))
		return false;
	if (new_last != last)
		WRITE_ONCE(*end, new_last);
	WRITE_ONCE(*begin, new_first);
	return true;
}

/**
 * buffer_begins() - Mark a buffer that the domain has allocated.
 * @domain: The domain.
 * @p: Begin of the buffer.
 * @n: Its size in bytes.
 *
 * Return: False where it cannot be marked.
 */
static __always_inline bool buffer_begins(u32 domain, unsigned long p, unsigned long n)
{
	return n >= BUFFER_LEAST_OWN && buffer_exchange(p, n, 0, buffer_owned(domain), 0, buffer_last(domain));
}

/**
 * buffer_arrives() - Mark a buffer that the domain received with a packet.
 * @domain: The domain.
 * @p: Begin of the buffer.
 * @n: Its size in bytes.
 *
 * Return: False where it cannot be marked.
 */
static __always_inline bool buffer_arrives(u32 domain, unsigned long p, unsigned long n)
{
	return buffer_exchange(p, n, 0, buffer_of_packet(domain), 0, buffer_last(domain));
}

/**
 * buffer_moves() - Turn the domain's own buffer into a packet's.
 * @domain: The domain.
 * @p: Begin of the buffer.
 * @n: Its size in bytes.
 *
 * Return: False where it is no such buffer.
 */
static __always_inline bool buffer_moves(u32 domain, unsigned long p, unsigned long n)
{
	return buffer_exchange(p, n, buffer_owned(domain), buffer_of_packet(domain), buffer_last(domain), buffer_last(domain));
}

/**
 * buffer_ends() - Remove the marks of a packet's buffer that the domain releases.
 * @domain: The domain.
 * @p: Begin of the buffer.
 * @n: Its size in bytes.
 *
 * Return: False where it is no such buffer.
 */
static __always_inline bool buffer_ends(u32 domain, unsigned long p, unsigned long n)
{
	return buffer_exchange(p, n, buffer_of_packet(domain), 0, buffer_last(domain), 0);
}

/**
 * buffer_has() - Test for a range in a packet's buffer, where short packets are copied to.
 * @domain: The domain.
 * @p: First byte of the range.
 * @n: Number of bytes.
 *
 * Return: True where all of it lies in such a buffer; false decides nothing.
 */
static __always_inline bool buffer_has(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long tag = tag_of(p) & ~7UL, last = tag_of(p + n - 1) & ~7UL, at = tag, word;

	if (p < KERNEL_HALF || n > PAGE_SIZE || (tag ^ last) & PAGE_MASK)
		return false;
	for (;; at -= 8) {
		if (!load_word(at, &word))
			return false;
		if (word == buffer_of_packet(domain))
			break;
		if (word || at % PAGE_SIZE == 0 || tag - at >= BUFFER_HEADERS / GUARDRAIL_SLOT)
			return false;
	}
	/* Between the marks there are none. */
	for (at = tag + 8; at <= last; at += 8) {
		if (!load_word(at, &word))
			return false;
		if (word)
			return at == last && word == buffer_last(domain);
	}
	return true;
}

/**
 * is_buffer_of_packet() - Test for the begin of a packet's buffer.
 * @domain: The domain.
 * @p: Address to test.
 *
 * Return: True where one begins at @p.
 */
static inline bool is_buffer_of_packet(u32 domain, unsigned long p)
{
	unsigned long found;

	return p >= KERNEL_HALF && !(p % BUFFER_WORD) && load_word(tag_of(p), &found) && found == buffer_of_packet(domain);
}

#endif /* GUARDRAIL_RIGHTS_BUFFER_H */
