// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Buffers that are written after all, or listed: finds the begin and the end of the buffer that
 * contains a byte. rights/buffer.h describes the marks.
 */
#include "rights/buffer.h"
#include "rights/kinds.h"
#include "rights/object.h"
#include "rights/ranges.h"

static u64 word_at(unsigned long tag)
{
	return READ_ONCE(*(u64 *)tag);
}

static bool is_first(u64 word, u32 domain)
{
	return word == buffer_owned(domain) || word == buffer_of_packet(domain);
}

/* Finds the buffer that has the byte at @addr: its marks are the next ones in both directions. */
static bool find(u32 domain, unsigned long addr, struct guardrail_range *found)
{
	unsigned long tag = tag_of(addr) & ~7UL, page = tag & PAGE_MASK, begin, end;

	if (!is_domain(domain) || addr < KERNEL_HALF || tag_peek(tag) < 0)
		return false;
	for (begin = tag; !is_first(word_at(begin), domain); begin -= 8)
		if (begin == page || (begin != tag && word_at(begin) == buffer_last(domain)))
			return false;
	for (end = tag; word_at(end) != buffer_last(domain); end += 8)
		if (end == page + PAGE_SIZE - 8 || (end != begin && is_first(word_at(end), domain)))
			return false;
	found->start = slot_of(begin);
	found->len = slot_of(end) + BUFFER_WORD - found->start;
	return true;
}

bool guardrail_buffer_owned(u32 domain, unsigned long addr, struct guardrail_range *found)
{
	return find(domain, addr, found) && word_at(tag_of(found->start)) == buffer_owned(domain);
}

bool guardrail_buffer_grant(u32 domain, unsigned long addr)
{
	struct guardrail_range range;

	if (!find(domain, addr, &range))
		return false;
	if (word_at(tag_of(range.start)) == buffer_owned(domain)) {
		guardrail_count_owned(domain, -range.len);
		if (guardrail_own_known(domain, range.start, range.len, GUARDRAIL_KIND_FRAG) == -ENOMEM) {
			guardrail_count_owned(domain, range.len);
			return false;
		}
	}
	/* Remove the marks first, or the change below would find them again. */
	WRITE_ONCE(*(u64 *)tag_of(range.start), 0);
	WRITE_ONCE(*(u64 *)tag_of(range.start + range.len - BUFFER_WORD), 0);
	return !guardrail_range_change(domain, range.start, range.len, GUARDRAIL_WRITE, true);
}
