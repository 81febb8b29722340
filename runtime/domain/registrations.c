// SPDX-License-Identifier: GPL-2.0-or-later
/* What domains have registered with the kernel; domain/registrations.h describes it. */
#include <linux/list.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "base/limits.h"
#include "domain/registrations.h"

/* The most registrations of all domains. */
#define MOST 4096

/* The registrations, the latest first. */
static LIST_HEAD(registrations);
static unsigned int n_registrations;
/* Whether one could not be noted, so that a domain may have more than are known. */
static bool incomplete;
/* Protects what is above. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(lock);

void guardrail_registration_note(const struct guardrail_registration *made)
{
	struct guardrail_registration *fresh = kmemdup(made, sizeof(*made), GFP_ATOMIC | __GFP_NOWARN);
	unsigned long flags;
	bool full;

	raw_spin_lock_irqsave(&lock, flags);
	full = !fresh || n_registrations == MOST;
	if (!full) {
		list_add(&fresh->list, &registrations);
		n_registrations++;
	}
	incomplete |= full;
	raw_spin_unlock_irqrestore(&lock, flags);
	if (!full)
		return;
	kfree(fresh);
	guardrail_limit_reached(GUARDRAIL_LIMIT_REGISTRATIONS);
}

static bool is_same(const struct guardrail_registration *a, const struct guardrail_registration *b, unsigned long counts)
{
	unsigned int i;

	if (a->domain != b->domain || strcmp(a->inverse, b->inverse))
		return false;
	for (i = 0; i < b->n; i++)
		if (counts & BIT(i) && (i >= a->n || a->args[i] != b->args[i]))
			return false;
	return true;
}

bool guardrail_registration_is_made(const struct guardrail_registration *made)
{
	const struct guardrail_registration *one;
	unsigned long flags;
	bool is;

	raw_spin_lock_irqsave(&lock, flags);
	is = incomplete;
	list_for_each_entry(one, &registrations, list)
		is = is || is_same(one, made, ~0UL);
	raw_spin_unlock_irqrestore(&lock, flags);
	return is;
}

static void move(struct guardrail_registration *registration, struct list_head *gone)
{
	lockdep_assert_held(&lock);
	list_move_tail(&registration->list, gone);
	n_registrations--;
}

void guardrail_registration_forget(const struct guardrail_registration *undone, unsigned long counts)
{
	struct guardrail_registration *one, *next, *above;
	unsigned long flags;
	LIST_HEAD(gone);

	raw_spin_lock_irqsave(&lock, flags);
	list_for_each_entry(one, &registrations, list)
		if (is_same(one, undone, counts)) {
			move(one, &gone);
			break;
		}
	/* Those behind it in the list are found as it grows. */
	list_for_each_entry(above, &gone, list)
		list_for_each_entry_safe(one, next, &registrations, list)
			if (one->domain == above->domain && one->n > 1 && one->args[1] == above->args[0] && above->args[0] &&
			    !strcmp(one->inverse, above->inverse))
				move(one, &gone);
	raw_spin_unlock_irqrestore(&lock, flags);
	list_for_each_entry_safe(one, next, &gone, list)
		kfree(one);
}

struct guardrail_registration *guardrail_registration_take(u32 domain)
{
	struct guardrail_registration *one, *found = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&lock, flags);
	list_for_each_entry(one, &registrations, list)
		if (one->domain == domain) {
			found = one;
			list_del(&found->list);
			n_registrations--;
			break;
		}
	raw_spin_unlock_irqrestore(&lock, flags);
	return found;
}

void guardrail_registrations_leave(u32 domain, const char *name)
{
	struct guardrail_registration *made;

	while ((made = guardrail_registration_take(domain))) {
		pr_warn("module %s is gone, and what %s registered stays\n", name, made->function);
		kfree(made);
	}
}
