// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Functions that write as much text as their arguments make it. Each is performed here in place of the kernel's: what
 * it needs is measured, required, and then it writes no more than that, even if another thread changes what was
 * measured. Where the policy lets a violation go on, the kernel's function is called after all.
 */
#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "border/custom.h"
#include "border/text.h"
#include "rights/memory.h"

/* Texts of formats up to this size need one pass. */
#define SHORT_TEXT 128
void guardrail_text_args(struct guardrail_call *call, unsigned int named, union guardrail_text_args *args)
{
	args->words.gp_offset = 8 * named;
	args->words.fp_offset = 48;
	args->words.overflow = call->stack;
	args->words.saved = call->args;
}

bool guardrail_text_list(unsigned long p, union guardrail_text_args *args)
{
	return is_kernel_range(p, sizeof(*args)) && !copy_from_kernel_nofault(args, (void *)p, sizeof(*args));
}

bool guardrail_text_at(const struct guardrail_action *action, struct guardrail_call *call, unsigned long p, unsigned long most,
		       unsigned long *length)
{
	if (text_length(p, most, length) && *length < MOST_TEXT)
		return true;
	guardrail_refuse(action, call, "text at", p, "nothing that can be read", "a text that ends");
	return false;
}

/*
 * Formats into [p, p + most), of which the domain must be allowed to write what the text fills. Returns the length of
 * the text as vsnprintf() does, or -1 after a violation.
 */
static int text_format(const struct guardrail_action *action, struct guardrail_call *call, unsigned long p, unsigned long most,
		       const char *format, union guardrail_text_args *args)
{
	unsigned long size = min(most, (unsigned long)SHORT_TEXT);
	union guardrail_text_args copy = *args;
	int length;

	if (guardrail_may_write(action, call, p, size)) {
		length = vsnprintf((char *)p, size, format, copy.list);
		if (length < size || size == most)
			return length;
	} else {
		length = vsnprintf(NULL, 0, format, copy.list);
	}
	size = min(most, length + 1UL);
	if (!guardrail_require_write(action, call, p, size))
		return -1;
	copy = *args;
	return vsnprintf((char *)p, size, format, copy.list);
}

/* The call's result is @result, unless this is an error. */
static int done(struct guardrail_call *call, int result)
{
	if (result < 0)
		return 0;
	call->result = result;
	return 1;
}

GUARDRAIL_CUSTOM(sprintf)
{
	union guardrail_text_args args;

	guardrail_text_args(call, 2, &args);
	return done(call, text_format(action, call, call->args[0], INT_MAX, (const char *)call->args[1], &args));
}

GUARDRAIL_CUSTOM(vsprintf)
{
	union guardrail_text_args args;

	if (!guardrail_text_list(call->args[2], &args))
		return 0;
	return done(call, text_format(action, call, call->args[0], INT_MAX, (const char *)call->args[1], &args));
}

/* Formats what fits into a page behind @p; returns the bytes that were written. */
static int text_emit(const struct guardrail_action *action, struct guardrail_call *call, unsigned long p, unsigned int named)
{
	unsigned long room = PAGE_SIZE - offset_in_page(p);
	union guardrail_text_args args;
	int length;

	guardrail_text_args(call, named, &args);
	length = text_format(action, call, p, room, (const char *)call->args[named - 1], &args);
	return done(call, length < 0 ? length : min_t(int, length, room - 1));
}

/* The kernel warns of all but the begin of a page. */
static bool is_page(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p = call->args[0];

	if (p && !offset_in_page(p))
		return true;
	guardrail_refuse(action, call, "text of an attribute at", p, "another address", "the begin of a page");
	return false;
}

GUARDRAIL_CUSTOM(sysfs_emit)
{
	return is_page(action, call) ? text_emit(action, call, call->args[0], 2) : 0;
}

GUARDRAIL_CUSTOM(sysfs_emit_at)
{
	int at = call->args[1];

	if (!is_page(action, call))
		return 0;
	if (at < 0 || at >= PAGE_SIZE) {
		guardrail_refuse(action, call, "text of an attribute behind", call->args[0], "another offset", "one in the page");
		return 0;
	}
	return text_emit(action, call, call->args[0] + at, 3);
}

/* Copies @length bytes of a text and its end. The bytes may have changed, and may overlap. */
static int text_copy(const struct guardrail_action *action, struct guardrail_call *call, unsigned long to, unsigned long from,
		     unsigned long length)
{
	if (!guardrail_require_write(action, call, to, length + 1))
		return 0;
	memmove((char *)to, (char *)from, length);
	((char *)to)[length] = 0;
	return 1;
}

GUARDRAIL_CUSTOM(strcpy)
{
	unsigned long length;

	call->result = call->args[0];
	return guardrail_text_at(action, call, call->args[1], MOST_TEXT, &length) && text_copy(action, call, call->args[0], call->args[1], length);
}

GUARDRAIL_CUSTOM(stpcpy)
{
	unsigned long length = 0;

	if (!guardrail_text_at(action, call, call->args[1], MOST_TEXT, &length))
		return 0;
	call->result = call->args[0] + length;
	return text_copy(action, call, call->args[0], call->args[1], length);
}

GUARDRAIL_CUSTOM(strcat)
{
	unsigned long length, before;

	call->result = call->args[0];
	return guardrail_text_at(action, call, call->args[1], MOST_TEXT, &length) && guardrail_text_at(action, call, call->args[0], MOST_TEXT, &before) &&
	       text_copy(action, call, call->args[0] + before, call->args[1], length);
}

GUARDRAIL_CUSTOM(strncat)
{
	unsigned long length, before;

	call->result = call->args[0];
	return guardrail_text_at(action, call, call->args[1], min(call->args[2], MOST_TEXT - 1), &length) &&
	       guardrail_text_at(action, call, call->args[0], MOST_TEXT, &before) &&
	       text_copy(action, call, call->args[0] + before, call->args[1], length);
}

GUARDRAIL_CUSTOM(strlcat)
{
	unsigned long length, before, room = call->args[2];

	if (!guardrail_text_at(action, call, call->args[1], MOST_TEXT, &length) || !guardrail_text_at(action, call, call->args[0], MOST_TEXT, &before))
		return 0;
	/* The kernel stops here. */
	if (before >= room) {
		guardrail_refuse(action, call, "text at", call->args[0], "a text of all the room", "one that leaves some");
		return 0;
	}
	call->result = before + length;
	return text_copy(action, call, call->args[0] + before, call->args[1], min(length, room - before - 1));
}

/* Newer kernels return the begin of the text, older ones its end. */
static bool replace_returns_begin(void)
{
	char text[] = "a";

	return strreplace(text, 'a', 'b') == text;
}

GUARDRAIL_CUSTOM(strreplace)
{
	unsigned long p = call->args[0], length, at;
	char old = call->args[1], new = call->args[2];

	if (!guardrail_text_at(action, call, p, MOST_TEXT, &length) || !guardrail_require_write(action, call, p, length))
		return 0;
	for (at = 0; at < length; at++)
		if (((char *)p)[at] == old)
			((char *)p)[at] = new;
	call->result = replace_returns_begin() ? p : p + length;
	return 1;
}

GUARDRAIL_CUSTOM(strim)
{
	unsigned long p = call->args[0], length, begin = 0;

	if (!guardrail_text_at(action, call, p, MOST_TEXT, &length))
		return 0;
	if (length) {
		while (length && isspace(((char *)p)[length - 1]))
			length--;
		/* Where nothing is cut off, the kernel writes the end over itself. */
		if (((char *)p)[length] && !guardrail_require_write(action, call, p + length, 1))
			return 0;
		if (((char *)p)[length])
			((char *)p)[length] = 0;
	}
	while (begin < length && isspace(((char *)p)[begin]))
		begin++;
	call->result = p + begin;
	return 1;
}

GUARDRAIL_CUSTOM(strsep)
{
	unsigned long from = call->args[0], of = call->args[1], begin, end, n;
	char byte, stop;

	if (!guardrail_require_write(action, call, from, sizeof(char *)) || !guardrail_text_at(action, call, of, MOST_TEXT, &n) ||
	    !load_word(from, &begin))
		return 0;
	call->result = begin;
	if (!begin)
		return 1;
	for (end = begin; ; end++) {
		if (!text_byte(end, &byte))
			return guardrail_text_at(action, call, begin, MOST_TEXT, &n);
		if (!byte) {
			WRITE_ONCE(*(char **)from, NULL);
			return 1;
		}
		for (n = 0; text_byte(of + n, &stop) && stop && stop != byte; n++)
			;
		if (stop == byte)
			break;
	}
	if (!guardrail_require_write(action, call, end, 1))
		return 0;
	*(char *)end = 0;
	WRITE_ONCE(*(char **)from, (char *)end + 1);
	return 1;
}

/* string_unescape(): a size of 0 stands for the room that the text itself takes. */
GUARDRAIL_CUSTOM(unescape)
{
	unsigned long length;

	if (!guardrail_text_at(action, call, call->args[0], MOST_TEXT, &length))
		return 0;
	if (!call->args[2])
		call->args[2] = length + 1;
	guardrail_require_write(action, call, call->args[1], min(call->args[2], length + 1));
	return 0;
}

/* The text may fill what is left of the page. */
GUARDRAIL_CUSTOM(rest_of_page)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_require_write(action, call, p, PAGE_SIZE - offset_in_page(p));
	return 0;
}

/* A text was allocated; the value is the kind of allocation. */
GUARDRAIL_CUSTOM(text_new)
{
	unsigned long p = object_of(action, call), length;

	return p && text_length(p, MOST_TEXT, &length) ? guardrail_give(action->domain, p, length + 1, size_of(action, call)) : 0;
}

/*
 * A text to print, with so many arguments up to its format: formatted to nowhere first, since a fault of the function that
 * prints would keep its processor from printing again.
 */
GUARDRAIL_CUSTOM(format)
{
	unsigned long p = object_of(action, call), length;
	union guardrail_text_args args;

	if (!p || !guardrail_text_at(action, call, p, MOST_TEXT, &length))
		return 0;
	guardrail_text_args(call, size_of(action, call), &args);
	vsnprintf(NULL, 0, (const char *)p, args.list);
	return 0;
}
