/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What actions are read with. It is done several times for each call between a guarded module and the kernel, so it is inlined. */
#ifndef GUARDRAIL_ACTION_H
#define GUARDRAIL_ACTION_H

#include <linux/err.h>

#include "internal.h"

/* The word of a frame with this number. */
static inline unsigned long word_of(const struct guardrail_frame *frame, unsigned int n)
{
	return ((const unsigned long *)frame)[n];
}

/* The word at an address in the kernel's half; false where nothing can be read. */
static __always_inline bool load_word(unsigned long addr, unsigned long *word)
{
	unsigned long value = 0;
	u32 failed = 1;

	asm volatile("1:	movq	(%2), %0\n"
		     "	xorl	%1, %1\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "+r" (value), "+r" (failed) : "r" (addr) : "cc", "memory");
	*word = value;
	return !failed;
}

/* What terms are worked out to. It comes in registers, so who asks needs no variable in memory. */
struct guardrail_outcome {
	unsigned long value;
	unsigned long known;	/* 0 where something could not be read */
};
struct guardrail_outcome guardrail_terms(const struct guardrail_value *value, const struct guardrail_frame *frame);

static __always_inline bool value_of(const struct guardrail_value *value, const struct guardrail_frame *frame, unsigned long *result)
{
	struct guardrail_outcome outcome;

	if (likely(value->kind == GUARDRAIL_VALUE_WORD)) {
		*result = word_of(frame, value->word);
		return true;
	}
	if (value->kind == GUARDRAIL_VALUE_CONST) {
		*result = value->constant;
		return true;
	}
	if (value->kind == GUARDRAIL_VALUE_HALF) {
		*result = (u32)word_of(frame, value->word);
		return true;
	}
	outcome = guardrail_terms(value, frame);
	*result = outcome.value;
	return outcome.known;
}

/* What other than "always" is asked of the result, or of an argument. */
bool guardrail_is_when(const struct guardrail_action *action, const struct guardrail_frame *frame);

static __always_inline bool applies(const struct guardrail_action *action, const struct guardrail_frame *frame)
{
	if (action->when == GUARDRAIL_RESULT_VALID)
		return !IS_ERR_OR_NULL((void *)frame->result);
	return likely(action->when == GUARDRAIL_ALWAYS) || guardrail_is_when(action, frame);
}

/*
 * The pointer of an action that is to be done, in the usual case: it is a word of the frame, and neither NULL nor an error. False otherwise, also where the
 * action may be to be done. Nothing is called for it, so a function that only does the usual has no registers to save.
 */
static __always_inline bool usual_pointer(const struct guardrail_action *action, const struct guardrail_frame *frame, unsigned long *p)
{
	u8 word = action->pointer.word;

	if (action->pointer.kind != GUARDRAIL_VALUE_WORD ||
	    (action->when != GUARDRAIL_ALWAYS && (action->when != GUARDRAIL_RESULT_VALID || word != GUARDRAIL_WORD_RESULT)))
		return false;
	*p = word_of(frame, word);
	return !IS_ERR_OR_NULL((void *)*p);
}

/* The size of an action, in the usual case that it is an argument. */
static __always_inline bool usual_size(const struct guardrail_action *action, const struct guardrail_frame *frame, unsigned long *n)
{
	unsigned long word = word_of(frame, action->size.word);

	*n = action->size.kind == GUARDRAIL_VALUE_HALF ? (u32)word : word;
	return action->size.kind == GUARDRAIL_VALUE_HALF || action->size.kind == GUARDRAIL_VALUE_WORD;
}

/*
 * A call is asked something before it is made: there threads of dead domains go no further. All other actions note what the kernel has
 * done, which has to be known of a dead domain, too.
 */
static __always_inline void asks(const struct guardrail_action *action, const struct guardrail_frame *frame)
{
	if (unlikely(READ_ONCE(guardrail_dead_domains)))
		guardrail_crossing(action->domain, frame);
}

/* The address that an action is about; false where it is not to be done. */
static __always_inline bool pointer_of(const struct guardrail_action *action, const struct guardrail_frame *frame,
				       unsigned long *p)
{
	return applies(action, frame) && value_of(&action->pointer, frame, p) && *p;
}

/* The range that an action is about; false where it is not to be done. */
static __always_inline bool range_of(const struct guardrail_action *action, const struct guardrail_frame *frame, unsigned long *p,
				     unsigned long *n)
{
	return pointer_of(action, frame, p) && value_of(&action->size, frame, n) && *n;
}

#endif /* GUARDRAIL_ACTION_H */
