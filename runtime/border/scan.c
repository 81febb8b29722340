// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sscanf(): the kernel's function reads private copies and writes to slots of its own. What it has written is then
 * moved to where the driver wants it, by its real length. So no thread of the driver can change what was measured.
 */
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "border/custom.h"
#include "border/text.h"

/* The most conversions of a format that store something. */
#define MOST_SLOTS 32
/* What %n stores is never this. */
#define NOT_STORED (-1L)

/**
 * struct slot - A value of a conversion.
 * @to: Where the driver wants it.
 * @value: The number.
 * @text: The text, in memory of the scan.
 * @size: Bytes of the number.
 * @kind: The conversion's letter.
 */
struct slot {
	unsigned long to;
	long value;
	char *text;
	unsigned int size;
	char kind;
};

/**
 * struct scan - A call of sscanf().
 * @n: Number of slots; one more than there are for a format with too many conversions.
 * @texts: How many of them are texts.
 * @length: Bytes of the scanned text, which no text of a slot exceeds.
 * @refused: The first value that the driver may not have written: where, and its bytes.
 * @slots: Values, in the order of the format.
 * @pointers: Their places, as arguments.
 */
struct scan {
	unsigned int n, texts;
	unsigned long length;
	struct guardrail_range refused;
	struct slot slots[MOST_SLOTS];
	void *pointers[MOST_SLOTS];
};

/* The bytes of a number by its qualifier; *@format is behind it afterwards. */
static unsigned int qualified(const char **format)
{
	const char *at = *format;

	if (*at == 'h') {
		*format = at + (at[1] == 'h' ? 2 : 1);
		return at[1] == 'h' ? 1 : 2;
	}
	if (*at == 'l' || *at == 'L' || *at == 'z') {
		*format = at + (at[0] == 'l' && at[1] == 'l' ? 2 : 1);
		return 8;
	}
	return 4;
}

/* Behind a set of characters, as in %[a-z]. */
static const char *behind_set(const char *at)
{
	while (*at && *at != ']')
		at++;
	return *at ? at + 1 : at;
}

/* Adds a slot for one conversion, which begins behind the '%'; returns what is behind it. */
static const char *convert(struct scan *scan, const char *at, union guardrail_text_args *args)
{
	bool skipped = *at == '*';
	unsigned int size;
	char kind;

	if (skipped)
		at++;
	while (isdigit(*at))
		at++;
	size = qualified(&at);
	kind = *at;
	if (!kind)
		return at;
	at = kind == '[' ? behind_set(at + 1) : at + 1;
	if (skipped || !strchr("nc[soxXdiu", kind))
		return at;
	if (scan->n < MOST_SLOTS) {
		scan->slots[scan->n] = (struct slot){
			.to = va_arg(args->list, unsigned long), .size = kind == 'n' ? sizeof(int) : size, .kind = kind, .value = NOT_STORED,
		};
		scan->texts += !!strchr("c[s", kind);
	}
	scan->n = min(scan->n, MOST_SLOTS) + 1;
	return at;
}

static void parse(struct scan *scan, const char *format, union guardrail_text_args *args)
{
	while (*format)
		if (*format++ == '%')
			format = *format == '%' ? format + 1 : convert(scan, format, args);
}

/* Gives each slot its place; @memory has room for all texts. */
static void place(struct scan *scan, char *memory)
{
	unsigned int i;

	for (i = 0; i < scan->n; i++) {
		struct slot *slot = &scan->slots[i];

		scan->pointers[i] = &slot->value;
		if (!strchr("c[s", slot->kind))
			continue;
		slot->text = scan->pointers[i] = memory;
		memory += scan->length + 1;
	}
}

/* Moves a value to where the driver wants it; false where it may not. */
static bool deliver(const struct guardrail_action *action, const struct guardrail_call *call, struct scan *scan, const struct slot *slot)
{
	unsigned long n = slot->text ? strlen(slot->text) + (slot->kind != 'c') : slot->size;

	if (!guardrail_may_write(action, call, slot->to, n)) {
		scan->refused = (struct guardrail_range){ slot->to, n };
		return false;
	}
	memcpy((void *)slot->to, slot->text ?: (const char *)&slot->value, n);
	return true;
}

static unsigned long scanned(const struct guardrail_action *action, const struct guardrail_call *call, struct scan *scan, const char *text,
			     const char *format, char *memory)
{
	union guardrail_text_args args = { .words = { .gp_offset = 48, .fp_offset = 48, .overflow = scan->pointers } };
	int found, left;
	unsigned int i;

	place(scan, memory);
	found = vsscanf(text, format, args.list);
	for (i = 0, left = found; i < scan->n; i++) {
		const struct slot *slot = &scan->slots[i];

		if (slot->kind == 'n' ? slot->value == NOT_STORED : left-- <= 0)
			continue;
		if (!deliver(action, call, scan, slot))
			break;
	}
	return found;
}

/* Scans private copies. Without memory for them, or with too many conversions, nothing is found. */
static unsigned long scan_copies(const struct guardrail_action *action, const struct guardrail_call *call, struct scan *scan,
				 const struct guardrail_range *text, const struct guardrail_range *format,
				 union guardrail_text_args *args)
{
	char *copy = kzalloc(text->len + format->len + 2, GFP_ATOMIC | __GFP_NOWARN), *memory = NULL;
	unsigned long found = 0;

	scan->length = text->len;
	if (copy && !copy_from_kernel_nofault(copy, (void *)text->start, text->len) &&
	    !copy_from_kernel_nofault(copy + text->len + 1, (void *)format->start, format->len)) {
		parse(scan, copy + text->len + 1, args);
		if (scan->texts)
			memory = kcalloc(scan->texts, text->len + 1, GFP_ATOMIC | __GFP_NOWARN);
		if (scan->n <= MOST_SLOTS && (memory || !scan->texts))
			found = scanned(action, call, scan, copy, copy + text->len + 1, memory);
	}
	kfree(memory);
	kfree(copy);
	return found;
}

static int scan(const struct guardrail_action *action, struct guardrail_call *call, union guardrail_text_args *args)
{
	struct guardrail_range text = { .start = call->args[0] }, format = { .start = call->args[1] }, refused = { };
	struct scan *scan;

	if (!guardrail_text_at(action, call, text.start, MOST_TEXT, &text.len) ||
	    !guardrail_text_at(action, call, format.start, MOST_TEXT, &format.len))
		return 0;
	call->result = 0;
	scan = kzalloc(sizeof(*scan), GFP_ATOMIC | __GFP_NOWARN);
	if (!scan)
		return 1;
	call->result = scan_copies(action, call, scan, &text, &format, args);
	refused = scan->refused;
	kfree(scan);
	return !refused.len || guardrail_require_write(action, call, refused.start, refused.len);
}

GUARDRAIL_CUSTOM(sscanf)
{
	union guardrail_text_args args;

	guardrail_text_args(call, 2, &args);
	return scan(action, call, &args);
}

GUARDRAIL_CUSTOM(vsscanf)
{
	union guardrail_text_args args;

	return guardrail_text_list(call->args[2], &args) ? scan(action, call, &args) : 0;
}
