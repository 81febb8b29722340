// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Rights to fields of structures. A list of fields becomes a mask for each slot, so each slot changes once. The lists
 * of actions are the same each time: they become templates, words of eight tags that are compared and stored as a
 * whole.
 */
#include <linux/hash.h>
#include <linux/spinlock.h>

#include "rights/conflict.h"
#include "rights/fields.h"
#include "rights/mask.h"
#include "rights/table.h"

/* Slots that change together. */
#define WINDOW 64
/* The largest structure that has templates, in bytes. */
#define LARGEST (WINDOW * GUARDRAIL_SLOT)
#define WORDS (WINDOW / 8 + 1)
#define TEMPLATE_BITS 6

/**
 * struct template - The tags of a list of fields, for structures that begin at one slot of a word of eight.
 * @fields: The list, known by its address; NULL where the place is free.
 * @n_fields: Its length.
 * @domain: Domain that may write the fields.
 * @version: Version of the domain's masks that the tags are from.
 * @first: Slot of the first word at which the structure begins.
 * @n_words: How many words there are.
 * @words: The tags.
 * @masks: All bits of the tags that are not 0.
 */
struct template {
	const struct guardrail_field *fields;
	u32 n_fields;
	u32 domain;
	u32 version;
	u8 first;
	u8 n_words;
	u64 words[WORDS];
	u64 masks[WORDS];
};

static struct template templates[1 << TEMPLATE_BITS];
/*
 * Protects changes of templates. Readers take no lock: they see the fields of a template after its tags. Taken in any
 * context but NMI. The lock of masks nests inside.
 */
static DEFINE_SPINLOCK(lock);

/* Finds the bytes of the slots in a window that the fields of a structure at @p cover. */
static void bytes_of(unsigned long p, const struct guardrail_field *fields, u32 n, unsigned long window, u8 masks[WINDOW])
{
	unsigned long end = window + WINDOW * GUARDRAIL_SLOT - 1;
	u32 i;

	memset(masks, 0, WINDOW);
	for (i = 0; i < n; i++) {
		unsigned long at = p + fields[i].offset, last = at + fields[i].size - 1;

		if (!fields[i].size || last < window || at > end)
			continue;
		at = max(at, window);
		last = min(last, end);
		while (at <= last) {
			unsigned long next = (at | (GUARDRAIL_SLOT - 1)) + 1;

			masks[(at - window) / GUARDRAIL_SLOT] |= slot_mask(at, last + 1);
			if (!next)
				break;
			at = next;
		}
	}
}

static int change_window(unsigned long window, const u8 masks[WINDOW], struct guardrail_slot_change *change)
{
	int i, err = 0;

	for (i = 0; i < WINDOW && !err; i++) {
		unsigned long tag = tag_of(window) + i;

		/* Entries give the same fields again and again. */
		if (!masks[i] || (change->right == GUARDRAIL_WRITE && writes_part(tag, change->domain, masks[i])))
			continue;
		change->mask = masks[i];
		if (change->right == GUARDRAIL_WRITE)
			err = populate(tag, tag);
		else if (tag_peek(tag) < 0)
			continue;
		err = err ?: guardrail_slot_change(tag, change);
	}
	return err;
}

static bool all_kernel(unsigned long p, const struct guardrail_field *fields, u32 n, unsigned long *last)
{
	u32 i;

	*last = 0;
	for (i = 0; i < n; i++) {
		if (!fields[i].size)
			continue;
		if (!is_kernel_range(p + fields[i].offset, fields[i].size))
			return false;
		*last = max(*last, p + fields[i].offset + fields[i].size - 1);
	}
	return true;
}

/* Changes the fields without a template. */
static noinline int change_fields(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n, u8 right)
{
	struct guardrail_slot_change change = { .domain = domain, .right = right, .keep_objects = true };
	unsigned long window = p & ~(GUARDRAIL_SLOT - 1UL), last;
	u8 masks[WINDOW];
	int err = 0;

	if (!is_domain(domain) || !all_kernel(p, fields, n, &last))
		return -EINVAL;
	while (last && window <= last && !err) {
		bytes_of(p, fields, n, window, masks);
		err = change_window(window, masks, &change);
		if (window + LARGEST < window)
			break;
		window += LARGEST;
	}
	return err;
}

int guardrail_grant_fields(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	return change_fields(domain, p, fields, n, GUARDRAIL_WRITE);
}
EXPORT_SYMBOL_GPL(guardrail_grant_fields);

static struct template *place_of(const struct guardrail_field *fields, unsigned int first)
{
	return &templates[hash_long((unsigned long)fields + first, TEMPLATE_BITS)];
}

static bool is_for(const struct template *template, u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	return smp_load_acquire(&template->fields) == fields && template->domain == domain && template->n_fields == n &&
	       template->first == p / GUARDRAIL_SLOT % 8 && template->version == guardrail_masks_version(domain);
}

bool guardrail_fields_tags(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n, u8 *tags, unsigned int slots)
{
	unsigned long last;
	u8 masks[WINDOW];
	unsigned int i;

	if (!is_domain(domain) || !all_kernel(p, fields, n, &last) || !last || slots > WINDOW || last >= p + slots * GUARDRAIL_SLOT)
		return false;
	bytes_of(p, fields, n, p, masks);
	for (i = 0; i < slots; i++) {
		tags[i] = guardrail_mask_tag(domain, masks[i], GUARDRAIL_MASKS);
		if (tags[i] == GUARDRAIL_CONFLICT)
			return false;
	}
	return true;
}

/* Makes the template, if the list can have one and the place is free; otherwise false. */
static noinline bool make(struct template *template, u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n)
{
	unsigned int first = p / GUARDRAIL_SLOT % 8, i;
	u8 *tags = (u8 *)template->words + first;
	unsigned long flags, last;
	bool done = false;

	if (!all_kernel(p, fields, n, &last) || !last || last - p >= LARGEST)
		return false;
	spin_lock_irqsave(&lock, flags);
	/* A template of masks that were forgotten belongs to no loaded module. */
	if (!template->fields || template->version != guardrail_masks_version(template->domain)) {
		WRITE_ONCE(template->fields, NULL);
		smp_wmb();
		memset(template->words, 0, sizeof(template->words));
		memset(template->masks, 0, sizeof(template->masks));
		template->n_fields = n;
		template->domain = domain;
		template->version = guardrail_masks_version(domain);
		template->first = first;
		template->n_words = (first + (last - p) / GUARDRAIL_SLOT) / 8 + 1;
		done = guardrail_fields_tags(domain, p, fields, n, tags, WINDOW);
		for (i = 0; i < WINDOW; i++)
			((u8 *)template->masks)[first + i] = tags[i] ? 0xff : 0;
		/* Publish the fields after the tags. */
		if (done)
			smp_store_release(&template->fields, fields);
	}
	spin_unlock_irqrestore(&lock, flags);
	return done;
}

/* Changes eight slots one by one, whose tags are not as expected. */
static noinline int change_slots(unsigned long tag, u64 word, u32 domain, u8 right)
{
	struct guardrail_slot_change change = { .domain = domain, .right = right, .keep_objects = true, .many = true };
	int i, err = 0;

	for (i = 0; i < 8 && !err; i++) {
		u8 value = word >> (8 * i);

		change.mask = guardrail_writes[value];
		if (value)
			err = guardrail_slot_change(tag + i, &change);
	}
	return err;
}

static int apply(const struct template *template, unsigned long p, u8 right)
{
	unsigned long tag = tag_of(p) - template->first;
	int i, err = 0;

	for (i = 0; i < template->n_words && !err; i++, tag += 8) {
		u64 word = template->words[i], mask = template->masks[i], old, from, to;

		if (!mask)
			continue;
		old = READ_ONCE(*(u64 *)tag);
		from = right == GUARDRAIL_WRITE ? 0 : word;
		to = right == GUARDRAIL_WRITE ? word : 0;
		if ((old & mask) == to)
			continue;
		if ((old & mask) != from || cmpxchg((u64 *)tag, old, old ^ word) != old)
			err = change_slots(tag, word, template->domain, right);
	}
	return err;
}

int guardrail_fields_change(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n, u8 right)
{
	struct template *template = place_of(fields, p / GUARDRAIL_SLOT % 8);
	unsigned long tag = tag_of(p), last;
	int err;

	if (p % GUARDRAIL_SLOT || p < KERNEL_HALF || p + LARGEST < p ||
	    (!is_for(template, domain, p, fields, n) && !make(template, domain, p, fields, n)))
		return change_fields(domain, p, fields, n, right);
	last = tag - template->first + 8 * template->n_words - 1;
	if (right == GUARDRAIL_WRITE) {
		err = populate(tag, last);
		if (err)
			return err;
	} else if (tag_peek(tag) < 0 || tag_peek(last) < 0) {
		return change_fields(domain, p, fields, n, right);
	}
	return apply(template, p, right);
}

void guardrail_fields_forget(const struct module *module)
{
	unsigned long flags;
	int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < ARRAY_SIZE(templates); i++)
		if (within_module((unsigned long)templates[i].fields, module))
			WRITE_ONCE(templates[i].fields, NULL);
	spin_unlock_irqrestore(&lock, flags);
}
