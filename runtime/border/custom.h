/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Helpers for the functions behind "custom" and "instead" in annotations.
 *
 * Such a function has two values: a pointer, and a number that the annotation calls its value.
 * "custom" runs after the kernel's function, or before it where the annotation says so. The
 * kernel's function is left out where an "instead" returns other than 0.
 */
#ifndef GUARDRAIL_BORDER_CUSTOM_H
#define GUARDRAIL_BORDER_CUSTOM_H

#include "border/action.h"
#include "rights/kinds.h"

/**
 * object_of() - Find the pointer of an action.
 * @action: The action.
 * @frame: Call registers.
 *
 * Return: The pointer; 0 where there is nothing to do.
 */
static inline unsigned long object_of(const struct guardrail_action *action, const struct guardrail_call *call)
{
	unsigned long p;

	if (!applies(action, call) || !value_of(&action->pointer, call, &p) || IS_ERR_VALUE(p))
		return 0;
	return p;
}

/**
 * size_of() - Find the second value of an action.
 * @action: The action.
 * @frame: Call registers.
 *
 * Return: The value, or 0.
 */
static inline unsigned long size_of(const struct guardrail_action *action, const struct guardrail_call *call)
{
	unsigned long size;

	return value_of(&action->size, call, &size) ? size : 0;
}

/* Begins the definition of a function that annotations name. It runs in any context that driver code runs in. */
#define GUARDRAIL_CUSTOM(name)                                                                        \
	int guardrail_custom_##name(const struct guardrail_action *action, struct guardrail_call *call); \
	EXPORT_SYMBOL_GPL(guardrail_custom_##name);                                                   \
	int guardrail_custom_##name(const struct guardrail_action *action, struct guardrail_call *call)

#endif /* GUARDRAIL_BORDER_CUSTOM_H */
