// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pointers that a domain may pass to the kernel; border/reach.h says which.
 *
 * Drivers read pointers in the kernel's structures without a call, such as the parent of a device. Where the types of these
 * structures lead is not looked up: any word of the kernel's memory there counts that the domain cannot have written.
 * So this holds the domain to what lies near what it got, and not to what it got. Memory that was freed and allocated anew
 * still counts.
 */
#include <linux/sched.h>

#include "base/address.h"
#include "base/region.h"
#include "base/symbols.h"
#include "border/custom.h"
#include "border/reach.h"
#include "domain/entry.h"
#include "domain/imports.h"
#include "domain/module.h"
#include "domain/stack.h"
#include "report/report.h"
#include "rights/mask.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "rights/received.h"
#include "rights/tag.h"

/* How far memory is read from its begin, in bytes: around a received pointer, and behind a pointer there. */
#define NEAR 4096
#define FAR 1024
/* The same for variables whose size is not known. */
#define VARIABLE 256
/* Words that one search reads. */
#define BUDGET 400000
/* Entries of the task whose arguments count. */
#define DEPTH 8

/**
 * struct search - What is looked for.
 * @domain: For this domain.
 * @wanted: A pointer into this piece of memory.
 * @budget: Words that may still be read.
 */
struct search {
	u32 domain;
	struct guardrail_region wanted;
	unsigned int budget;
};

static bool is_wanted(const struct search *search, unsigned long p)
{
	return p - search->wanted.start < search->wanted.end - search->wanted.start;
}

static bool scan_at(struct search *search, unsigned long p, unsigned long most, bool deeper);

/* Looks at the words of a piece of memory; with @deeper, at those behind them as well. The domain writes its own stack. */
static bool scan(struct search *search, unsigned long from, unsigned long to, bool deeper)
{
	unsigned long at, word;

	if (guardrail_on_stack(from, 8))
		return false;

	for (at = ALIGN(from, 8); at + 8 <= to && search->budget; at += 8) {
		search->budget--;
		if (!load_word(at, &word))
			return false;
		if (word < KERNEL_HALF || IS_ERR_VALUE(word) || !guardrail_is_kernels(at))
			continue;
		if (is_wanted(search, word))
			return true;
		if (deeper && scan_at(search, word, FAR, false))
			return true;
	}
	return false;
}

/* Looks at the begin of the piece of memory that a pointer leads into. */
static bool scan_at(struct search *search, unsigned long p, unsigned long most, bool deeper)
{
	struct guardrail_region region;

	if (!guardrail_is_memory(p) || !guardrail_region_of(p, &region))
		return false;
	/* To find an object of a slab takes about as long as to read these. */
	search->budget -= min(search->budget, 32U);
	/* Where a variable ends is not always known. */
	if (guardrail_is_image(p) && region.end == p + 1)
		region.end = p + VARIABLE;
	return scan(search, region.start, min(region.end, region.start + most), deeper);
}

/* Goes through the pointers among the arguments of the task's entries: compares them, or looks at what they lead to. */
static bool find_arguments(struct search *search, bool at, bool deeper)
{
	const struct guardrail_record *record = guardrail_innermost();
	int depth;

	for (depth = 0; record && depth < DEPTH; depth++, record = record->previous) {
		unsigned long words = record->entry && record->entry->domain == search->domain ? record->entry->pointers : 0;
		unsigned int i;

		/* The domain chose them. */
		if (words && guardrail_called_itself(record))
			continue;
		for_each_set_bit(i, &words, BITS_PER_LONG) {
			unsigned long p = word_of(&record->call, i);

			if (at ? scan_at(search, p, NEAR, deeper) : is_wanted(search, p))
				return true;
		}
	}
	return false;
}

/* The same for what was received; the results of calls come first, since they are fewer and last longer. */
static bool find_received(struct search *search, bool at, bool deeper)
{
	struct guardrail_receipts *of = receipts_of(search->domain);
	int i;

	for (i = RECEIVED; of && i-- > 0;) {
		unsigned long p = READ_ONCE(of->pointers[i]);

		if (p && (at ? scan_at(search, p, NEAR, deeper) : is_wanted(search, p)))
			return true;
	}
	return false;
}

/* A variable that a module imports, or what it holds. */
static bool is_imported(unsigned long variable, void *data)
{
	struct search *search = data;
	struct guardrail_region region;

	if (is_wanted(search, variable))
		return true;
	return guardrail_region_of(variable, &region) && scan(search, region.start, min(region.end, region.start + FAR), false);
}

static bool search_all(struct search *search)
{
	return find_received(search, false, false) || is_wanted(search, (unsigned long)current) ||
	       guardrail_imported_variable(search->domain, is_imported, search) || find_arguments(search, true, false) ||
	       find_received(search, true, false) || find_arguments(search, true, true) || find_received(search, true, true);
}

bool guardrail_reaches(u32 domain, unsigned long p)
{
	struct search search = { .domain = domain, .budget = BUDGET };
	struct guardrail_receipts *of = receipts_of(domain);

	if (!of || p < KERNEL_HALF)
		return false;
	if (is_fresh(of, p))
		return true;
	if (guardrail_is_function(p))
		search.wanted = (struct guardrail_region){ p, p + 1 };
	else if (!guardrail_region_of(p, &search.wanted))
		return false;
	/* What only an argument leads to counts as long as the entry. */
	if (find_arguments(&search, false, false)) {
		if (!guardrail_was_received(of, p))
			return true;
	} else if (!search_all(&search)) {
		return false;
	}
	reached_now(of, p);
	return true;
}

/* True where each slot is one in which the domain has a right, or where an object of its own lies. */
static bool has_tags(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long tag, last = tag_of(p + n - 1);

	for (tag = tag_of(p); tag <= last; tag++) {
		int value = tag_peek(tag);

		if (value <= 0 || (value != GUARDRAIL_CONFLICT && (u32)value >> 4 != domain))
			return false;
	}
	return true;
}

/* The same for fewer slots than a page has tags, and true only where the rights to each are the domain's alone. */
static __always_inline bool has_words(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long tag = tag_of(p), end = tag_of(p + n - 1) + 1, word;
	const u64 of = EIGHT(GUARDRAIL_TAG(domain, 0)), high = EIGHT(0xf0);

	for (; tag + 8 <= end; tag += 8)
		if (!load_word(tag, &word) || (word ^ of) & high)
			return false;
	for (; tag < end; tag++)
		if (tag_peek(tag) >> 4 != domain)
			return false;
	return true;
}

/*
 * True for memory of the domain's own: that it may write, where objects of its own lie, in its allocations, on its stacks. An
 * allocation counts up to where the allocator's piece of memory ends, since a driver has rights to parts of some.
 */
static bool is_own(u32 domain, unsigned long p, unsigned long n)
{
	struct guardrail_region region;
	unsigned long last = p + n - 1;

	if (guardrail_check_write(domain, p, n) ||
	    (guardrail_is_in_domain(domain, p) && guardrail_is_in_domain(domain, last)) ||
	    (guardrail_on_stack_of(domain, p) && guardrail_on_stack_of(domain, last)))
		return true;
	return guardrail_region_of(p, &region) && guardrail_owns_any(domain, region.start) && last < region.end;
}

/*
 * True where the domain has a right to a part of a structure, and the rest is the kernel's. Neither its own allocations are
 * such structures, nor what it may write as a whole: those have to be as long as the structure.
 */
static bool holds_part(u32 domain, unsigned long p, unsigned long n)
{
	struct guardrail_region region;
	bool some = false, all = true;
	unsigned long tag, last;

	if (!guardrail_region_of(p, &region) || guardrail_owns_any(domain, region.start))
		return false;
	last = tag_of(min(p + n, region.end) - 1);
	for (tag = tag_of(p); tag <= last; tag++) {
		int value = tag_peek(tag);

		if (value > 0 && value != GUARDRAIL_CONFLICT && (u32)value >> 4 == domain)
			some = true;
		else
			all = false;
	}
	return some && !all;
}

/* What takes the longest comes last: a search takes up to milliseconds, and nothing notes that it found nothing. */
static bool may_use(u32 domain, unsigned long p, unsigned long n)
{
	/* Nothing of anyone's lies across the end of the address space. */
	bool wraps = p + n - 1 < p;

	if (!wraps && (has_tags(domain, p, n) || guardrail_on_stack(p, n) || is_own(domain, p, n)))
		return true;
	return guardrail_reaches(domain, p) || holds_part(domain, p, n);
}

void guardrail_require_ref(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p, unsigned long n)
{
	struct guardrail_receipts *of = receipts_of(action->domain);

	if (!p || IS_ERR_VALUE(p) || (of && p >= KERNEL_HALF && is_fresh(of, p)))
		return;
	if (!may_use(action->domain, p, max(n, 1UL)))
		guardrail_refuse(action, call, "use of", p, guardrail_held_at(p, action->domain), "a reference");
}

static noinline int require_ref(const struct guardrail_action *action, const struct guardrail_call *call)
{
	unsigned long p;

	if (likely(usual_pointer(action, call, &p) && !READ_ONCE(guardrail_dead_domains)) && p >= KERNEL_HALF &&
	    action->size.kind == GUARDRAIL_VALUE_CONST && action->size.constant < PAGE_SIZE &&
	    has_words(action->domain, p, max_t(unsigned long, action->size.constant, 1)))
		return 0;
	stop_dead(action, call);
	if (pointer_of(action, call, &p))
		guardrail_require_ref(action, call, p, size_of(action, call));
	return 0;
}

/*
 * Memory of the domain's own with as many bytes as the value says, or what it can have come by. What is asked for most is the
 * kernel's, again and again; then what lies in slots that are all the domain's.
 */
GUARDRAIL_CUSTOM(require_ref)
{
	return likely(is_reached(action, call, 0)) ? 0 : require_ref(action, call);
}

/* What only the kernel makes: the domain can have come by it, but cannot have it in its own memory. */
GUARDRAIL_CUSTOM(require_kernels)
{
	unsigned long p;

	if (likely(is_reached(action, call, 0)))
		return 0;
	stop_dead(action, call);
	if (pointer_of(action, call, &p) && !IS_ERR_VALUE(p) && !guardrail_reaches(action->domain, p))
		guardrail_refuse(action, call, "use of", p, guardrail_held_at(p, action->domain), "a reference");
	return 0;
}

/* The domain has received a pointer. */
GUARDRAIL_CUSTOM(grant_ref)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_receive(action->domain, p, GUARDRAIL_FROM_CALL);
	return 0;
}

/* What is there ends. */
GUARDRAIL_CUSTOM(revoke_ref)
{
	unsigned long p = object_of(action, call);
	struct guardrail_region region;

	if (p && guardrail_region_of(p, &region))
		guardrail_received_forget(action->domain, region.start, region.end);
	return 0;
}
