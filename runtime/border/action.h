/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How actions are evaluated. Each call between a guarded module and the kernel evaluates several,
 * hence the inlined functions. guardrail_abi.h declares the actions themselves and the functions
 * that classes write theirs with.
 */
#ifndef GUARDRAIL_BORDER_ACTION_H
#define GUARDRAIL_BORDER_ACTION_H

#include <linux/err.h>

#include "base/address.h"
#include "domain/entry.h"
#include "domain/unwind.h"

/**
 * word_of() - Read a word of the call registers.
 * @frame: Call registers.
 * @n: Number of the word.
 *
 * Return: The word.
 */
static inline unsigned long word_of(const struct guardrail_call *call, unsigned int n)
{
	return ((const unsigned long *)call)[n];
}

/**
 * struct guardrail_outcome - Result of terms, in registers: the caller needs no variable in memory.
 * @value: The value.
 * @known: 0 where something could not be read.
 */
struct guardrail_outcome {
	unsigned long value;
	unsigned long known;
};

/**
 * guardrail_terms() - Evaluate the terms of a value.
 * @value: A value of kind GUARDRAIL_VALUE_TERMS.
 * @frame: Call registers.
 *
 * Context: Any but NMI.
 * Return: The outcome.
 */
struct guardrail_outcome guardrail_terms(const struct guardrail_value *value, const struct guardrail_call *call);

/**
 * guardrail_values() - Evaluate all values of an action that has a list of them.
 * @action: The action; its type is their number.
 * @call: Call registers.
 * @values: Gets the values.
 * @most: How many there may be; others are left out.
 *
 * Context: Any but NMI.
 * Return: How many there are, or -ENOENT where one could not be read.
 */
int guardrail_values(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long *values, unsigned int most);

/**
 * guardrail_is_when() - Test the condition of an action, if it is a rare one.
 * @action: The action.
 * @frame: Call registers.
 *
 * Return: True where the condition on the result or on an argument holds.
 */
bool guardrail_is_when(const struct guardrail_action *action, const struct guardrail_call *call);

/**
 * guardrail_refuse_object() - Report that a function received something other than such an object.
 * @action: Action of the function.
 * @frame: Its call registers.
 * @p: The address that it received.
 * @type: Type of object that it needs.
 * @state: State that it needs, or GUARDRAIL_ANY_STATE.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_refuse_object(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p,
			     u32 type, u32 state);

/**
 * value_of() - Evaluate a value.
 * @value: The value.
 * @frame: Call registers.
 * @result: Gets the result.
 *
 * Return: False where something could not be read.
 */
static __always_inline bool value_of(const struct guardrail_value *value, const struct guardrail_call *call, unsigned long *result)
{
	struct guardrail_outcome outcome;

	if (likely(value->kind == GUARDRAIL_VALUE_WORD)) {
		*result = word_of(call, value->word);
		return true;
	}
	if (value->kind == GUARDRAIL_VALUE_CONST) {
		*result = value->constant;
		return true;
	}
	if (value->kind == GUARDRAIL_VALUE_HALF) {
		*result = (u32)word_of(call, value->word);
		return true;
	}
	outcome = guardrail_terms(value, call);
	*result = outcome.value;
	return outcome.known;
}

/**
 * applies() - Test the condition of an action.
 * @action: The action.
 * @frame: Call registers.
 *
 * Return: True where the action is to be done.
 */
static __always_inline bool applies(const struct guardrail_action *action, const struct guardrail_call *call)
{
	if (action->when == GUARDRAIL_RESULT_VALID)
		return !IS_ERR_OR_NULL((void *)call->result);
	return likely(action->when == GUARDRAIL_ALWAYS) || guardrail_is_when(action, call);
}

/**
 * usual_pointer() - Find the pointer of an action in the usual case, in which it is a word of the call registers.
 * @action: The action.
 * @frame: Call registers.
 * @p: Gets the pointer, which is neither NULL nor an error.
 *
 * It calls nothing, so a function that handles just the usual case saves no registers.
 *
 * Return: False in all other cases; the action may still have to be done then.
 */
static __always_inline bool usual_pointer(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long *p)
{
	u8 word = action->pointer.word;

	/* Nearly no entry is within another. */
	if (action->when == GUARDRAIL_OF_ENTRY && action->pointer.kind == GUARDRAIL_VALUE_WORD) {
		*p = word_of(call, word);
		return !container_of(call, struct guardrail_record, call)->previous && !IS_ERR_OR_NULL((void *)*p);
	}
	if (action->pointer.kind != GUARDRAIL_VALUE_WORD ||
	    (action->when != GUARDRAIL_ALWAYS && (action->when != GUARDRAIL_RESULT_VALID || word != GUARDRAIL_WORD_RESULT)))
		return false;
	*p = word_of(call, word);
	return !IS_ERR_OR_NULL((void *)*p);
}

/**
 * usual_size() - Find the size of an action in the usual case, in which it is an argument.
 * @action: The action.
 * @frame: Call registers.
 * @n: Gets the size.
 *
 * Return: False in all other cases.
 */
static __always_inline bool usual_size(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long *n)
{
	unsigned long word = word_of(call, action->size.word);

	*n = action->size.kind == GUARDRAIL_VALUE_HALF ? (u32)word : word;
	return action->size.kind == GUARDRAIL_VALUE_HALF || action->size.kind == GUARDRAIL_VALUE_WORD;
}

/**
 * guardrail_may_write() - Test for memory that a domain may write, by right or on its part of the stack.
 * @action: Action of the domain's call.
 * @call: Its call registers.
 * @p: First byte.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: True where it may write all of it.
 */
bool guardrail_may_write(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p, unsigned long n);

/**
 * stop_dead() - Stop a thread of a dead domain before it calls the kernel.
 * @action: An action that requires something before a call.
 * @frame: Call registers.
 *
 * Actions that require nothing do not stop it: they record what the kernel has done, also for dead
 * domains.
 *
 * Context: That of the entry. May not return.
 */
static __always_inline void stop_dead(const struct guardrail_action *action, const struct guardrail_call *call)
{
	if (unlikely(READ_ONCE(guardrail_dead_domains)))
		guardrail_crossing(action->domain, call);
}

/**
 * pointer_of() - Find the address that an action is about.
 * @action: The action.
 * @frame: Call registers.
 * @p: Gets the address.
 *
 * Return: False where the action is not to be done.
 */
static __always_inline bool pointer_of(const struct guardrail_action *action, const struct guardrail_call *call,
				       unsigned long *p)
{
	return applies(action, call) && value_of(&action->pointer, call, p) && *p;
}

/**
 * range_of() - Find the range that an action is about.
 * @action: The action.
 * @frame: Call registers.
 * @p: Gets its first byte.
 * @n: Gets its length.
 *
 * Return: False where the action is not to be done.
 */
static __always_inline bool range_of(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long *p,
				     unsigned long *n)
{
	return pointer_of(action, call, p) && value_of(&action->size, call, n) && *n;
}

#endif /* GUARDRAIL_BORDER_ACTION_H */
