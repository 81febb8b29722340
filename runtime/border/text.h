/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Text that may not be there, and lists of arguments. */
#ifndef GUARDRAIL_BORDER_TEXT_H
#define GUARDRAIL_BORDER_TEXT_H

#include <linux/stdarg.h>

#include "base/address.h"

/* No text is longer. */
#define MOST_TEXT (16UL << 20)

/**
 * union guardrail_text_args - Arguments behind the named parameters of a function, as the ABI of x86-64 passes them.
 * @list: For functions of the kernel.
 * @words: Its parts.
 */
union guardrail_text_args {
	va_list list;
	struct {
		unsigned int gp_offset, fp_offset;
		void *overflow, *saved;
	} words;
};

/**
 * text_byte() - Read a byte that may not be there.
 * @p: Its address, anywhere.
 * @byte: Gets the byte.
 *
 * Context: Any.
 * Return: False where it lies in user space or cannot be read.
 */
static __always_inline bool text_byte(unsigned long p, char *byte)
{
	unsigned int value = 0, failed = 1;

	if (!is_kernel_range(p, 1))
		return false;
	asm volatile("1:	movzbl	(%2), %0\n"
		     "	xorl	%1, %1\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "+r" (value), "+r" (failed) : "r" (p) : "cc", "memory");
	*byte = value;
	return !failed;
}

/**
 * text_length() - Measure a text that may not be there.
 * @p: Its address, anywhere.
 * @most: The most bytes to look at.
 * @length: Gets the bytes in front of its end; @most where it is longer.
 *
 * Context: Any.
 * Return: False where it is not readable up to there.
 */
static inline bool text_length(unsigned long p, unsigned long most, unsigned long *length)
{
	unsigned long at;
	char byte;

	for (at = 0; at < most; at++) {
		if (!text_byte(p + at, &byte))
			return false;
		if (!byte)
			break;
	}
	*length = at;
	return true;
}

/**
 * guardrail_text_args() - Find the arguments of a call behind named parameters.
 * @call: Call registers.
 * @named: Number of named parameters.
 * @args: Gets the arguments.
 */
void guardrail_text_args(struct guardrail_call *call, unsigned int named, union guardrail_text_args *args);

/**
 * guardrail_text_list() - Read a list of arguments that the driver has made.
 * @p: Address of its va_list, anywhere.
 * @args: Gets the arguments.
 *
 * Context: Any.
 * Return: False where it cannot be read.
 */
bool guardrail_text_list(unsigned long p, union guardrail_text_args *args);

/**
 * guardrail_text_at() - Measure a text, and report one that is not there.
 * @action: Action of the function that reads it.
 * @call: Its call registers.
 * @p: Address of the text, anywhere.
 * @most: The most bytes to look at.
 * @length: Gets the bytes in front of its end; @most where it is longer.
 *
 * Context: That of the entry. May not return.
 * Return: False where it is not readable up to there.
 */
bool guardrail_text_at(const struct guardrail_action *action, struct guardrail_call *call, unsigned long p, unsigned long most,
		       unsigned long *length);

#endif /* GUARDRAIL_BORDER_TEXT_H */
