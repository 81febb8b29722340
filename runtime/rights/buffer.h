/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Large buffers that devices fill: few drivers write to them, so nothing of one is granted before its domain does. Until then two marks in
 * the table say where it begins and ends, and that it is the domain's to release (the first entry of its first word of eight is marked) or a frame's
 * (the second is); the last entry of its last word is its end. So it begins and ends at multiples of 64 bytes, and nobody else has entries in its words.
 *
 * One comes and goes with each packet, so what is done then is inlined.
 */
#ifndef GUARDRAIL_BUFFER_H
#define GUARDRAIL_BUFFER_H

#include "border/action.h"

#define BUFFER_WORD (8UL * GUARDRAIL_SLOT)
/* Smaller ones are as quick to grant, and those of 1 KiB are what drivers copy short frames to. */
#define BUFFER_LEAST 1536
/* None reaches over pages of the table. */
#define BUFFER_MOST (PAGE_SIZE * GUARDRAIL_SLOT)

/* The first word of a buffer that is the domain's. */
static __always_inline u64 buffer_owned(u32 domain)
{
	return GUARDRAIL_ENTRY(domain, GUARDRAIL_OWNER);
}

/* The first word of a buffer that belongs to a frame. */
static __always_inline u64 buffer_of_frame(u32 domain)
{
	return buffer_owned(domain) << 8;
}

static __always_inline u64 buffer_last(u32 domain)
{
	return buffer_owned(domain) << 56;
}

/* The first and the last word become others, if they are what is expected; else, or where it is none that can be marked, false. */
static __always_inline bool buffer_exchange(unsigned long p, unsigned long n, u64 first, u64 new_first, u64 last, u64 new_last)
{
	u64 *begin = (u64 *)entry_of(p), *end = (u64 *)entry_of(p + n - BUFFER_WORD);
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

/* The domain has allocated it. */
static __always_inline bool buffer_begins(u32 domain, unsigned long p, unsigned long n)
{
	return buffer_exchange(p, n, 0, buffer_owned(domain), 0, buffer_last(domain));
}

/* It has come with a frame. */
static __always_inline bool buffer_comes(u32 domain, unsigned long p, unsigned long n)
{
	return buffer_exchange(p, n, 0, buffer_of_frame(domain), 0, buffer_last(domain));
}

/* What was the domain's becomes a frame's. */
static __always_inline bool buffer_moves(u32 domain, unsigned long p, unsigned long n)
{
	return buffer_exchange(p, n, buffer_owned(domain), buffer_of_frame(domain), buffer_last(domain), buffer_last(domain));
}

/* The frame goes that it belongs to. */
static __always_inline bool buffer_ends(u32 domain, unsigned long p, unsigned long n)
{
	return buffer_exchange(p, n, buffer_of_frame(domain), 0, buffer_last(domain), 0);
}

/* True where one begins at @p that belongs to a frame. */
static inline bool is_buffer_of_frame(u32 domain, unsigned long p)
{
	unsigned long found;

	return p >= KERNEL_HALF && !(p % BUFFER_WORD) && load_word(entry_of(p), &found) && found == buffer_of_frame(domain);
}

#endif /* GUARDRAIL_BUFFER_H */
