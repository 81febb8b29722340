// SPDX-License-Identifier: GPL-2.0-or-later
/* Objects that a driver has on its stack, or may have: timers, entries of wait queues and lists, completions, devices. */
#include <linux/completion.h>
#include <linux/wait.h>

#include "border/custom.h"
#include "domain/entry.h"
#include "domain/frames.h"

/* An object that a call passes to the kernel, for guardrail_frame_note(). */
#define NOTED(of, ...)									\
	(&(struct guardrail_noted){ .p = (of), .ip = call->caller, .domain = action->domain, __VA_ARGS__ })

/* A timer on the stack is initialized. */
GUARDRAIL_CUSTOM(timer_on_stack)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_frame_note(NOTED(p, .kind = ON_TIMER));
	return 0;
}

/* A character device on the stack is registered. */
GUARDRAIL_CUSTOM(misc_on_stack)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_frame_note(NOTED(p, .kind = ON_MISC));
	return 0;
}

/*
 * An entry is added to a wait queue or removed; the function may be called for it again and again.
 */
GUARDRAIL_CUSTOM(wait_wanted)
{
	unsigned long p = object_of(action, call);

	/* It would wait again for what may never come. */
	stop_dead(action, call);
	if (p && !guardrail_frame_is_noted(p, ON_WAIT))
		guardrail_require_write(action, call, p, sizeof(struct wait_queue_entry));
	return 0;
}

/* The entry is in the queue, which is the second value. */
GUARDRAIL_CUSTOM(wait_begins)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_frame_note(NOTED(p, .kind = ON_WAIT, .queue = (struct wait_queue_head *)size_of(action, call)));
	return 0;
}

GUARDRAIL_CUSTOM(wait_over)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_frame_forget(p, ON_WAIT);
	return 0;
}

/*
 * An entry is about to be inserted into a list. The kernel stops if the new neighbors do not link to each other; here
 * the entry ends before.
 */
GUARDRAIL_CUSTOM(list_wanted)
{
	struct list_head *prev = (struct list_head *)call->args[1], *next = (struct list_head *)call->args[2], before, after;
	unsigned long new = call->args[0];

	if (!guardrail_links_of(prev, &before) || !guardrail_links_of(next, &after))
		guardrail_refuse(action, call, "insertion into a list, behind", (unsigned long)prev, "no entry of a list", "one");
	else if (before.next != next || after.prev != prev)
		guardrail_refuse(action, call, "insertion into a list, behind", (unsigned long)prev, "an entry with other neighbours",
				 "neighbours of each other");
	else if (new == (unsigned long)prev || new == (unsigned long)next)
		guardrail_refuse(action, call, "insertion into a list of", new, "an entry of this list", "one that is in none");
	else
		guardrail_frame_note(NOTED(new, .kind = ON_LIST, .between.prev = prev, .between.next = next));
	return 0;
}

/*
 * complete() writes to its argument. That is memory of the driver, or lies on a stack where another entry of the driver
 * runs.
 */
GUARDRAIL_CUSTOM(completes)
{
	unsigned long p = object_of(action, call);

	if (p && !guardrail_on_stack_of(action->domain, p))
		guardrail_require_write(action, call, p, sizeof(struct completion));
	return 0;
}
