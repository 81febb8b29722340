// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Lists and static keys in the driver's memory that the kernel follows: a forged one would lead it anywhere. The driver may
 * change them after they were looked at; that race is not closed.
 */
#include <linux/jump_label.h>
#include <linux/list.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "base/address.h"
#include "base/region.h"
#include "base/symbols.h"
#include "border/check.h"
#include "border/custom.h"
#include "border/reach.h"
#include "border/target.h"
#include "domain/sound.h"
#include "report/report.h"

/* Waiters that are looked at. */
#define MOST 64
/* Entries of a list that is sorted. */
#define LONGEST (1 << 20)
/* How often a list is looked at that does not look sound: others may be changing it. */
#define TRIES 1000

static void refuse(const struct guardrail_action *action, const struct guardrail_call *call, const void *p)
{
	guardrail_refuse(action, call, "use of a list at", (unsigned long)p, "links that its neighbors do not return", "a list");
}

/* The function of a waiter in the driver's own memory is one that the driver may call. */
static bool may_wake(u32 domain, const struct wait_queue_entry *waiter)
{
	unsigned long function;

	if (!guardrail_check_write(domain, (unsigned long)waiter, sizeof(*waiter)) &&
	    !guardrail_may_write_stack((unsigned long)waiter, sizeof(*waiter)))
		return true;
	return load_word((unsigned long)&waiter->func, &function) && guardrail_target(domain, function);
}

static bool are_sound(u32 domain, const struct wait_queue_head *queue)
{
	const struct list_head *node = &queue->head;
	struct list_head links;
	int i;

	for (i = 0; i < MOST; i++) {
		if (!guardrail_links_return(node, &links) || (i && !may_wake(domain, container_of(node, struct wait_queue_entry, entry))))
			return false;
		node = links.next;
		if (!node || node == &queue->head)
			break;
	}
	return true;
}

/* The list of tasks that wait is sound. */
GUARDRAIL_CUSTOM(list_sound)
{
	const struct list_head *head = (const struct list_head *)object_of(action, call);

	if (head && !guardrail_is_list_sound(head))
		refuse(action, call, head);
	return 0;
}

/* The same of the first of them, to which a pointer leads. */
GUARDRAIL_CUSTOM(first_sound)
{
	const void *place = (const void *)object_of(action, call);

	if (place && !guardrail_is_first_sound(place))
		refuse(action, call, place);
	return 0;
}

/* The kernel sorts a list, which writes to each of its entries: they are all the driver's. */
GUARDRAIL_CUSTOM(list_owned)
{
	const struct list_head *head = (const struct list_head *)object_of(action, call), *node = head;
	struct list_head links;
	int i;

	for (i = 0; node && i < LONGEST; i++) {
		if (!guardrail_require_write(action, call, (unsigned long)node, sizeof(*node)))
			return 0;
		if (!guardrail_links_return(node, &links))
			break;
		node = links.next;
		if (node == head)
			return 0;
	}
	if (head)
		refuse(action, call, head);
	return 0;
}

/* The waiters of a queue are linked, and those in the driver's memory name functions that it may call. */
GUARDRAIL_CUSTOM(waiters_sound)
{
	const struct wait_queue_head *queue = (const struct wait_queue_head *)object_of(action, call);
	int i;

	for (i = 0; queue && !are_sound(action->domain, queue); i++) {
		if (i == TRIES) {
			refuse(action, call, queue);
			break;
		}
		cpu_relax();
	}
	return 0;
}

#ifdef CONFIG_JUMP_LABEL
/*
 * A static key says which code is patched when it changes: the rows of its module, and no list of other modules' rows, since
 * nothing shows that such a list is the kernel's.
 */
static bool is_key_sound(const struct static_key *key)
{
	const struct module *module = guardrail_module_at((unsigned long)key);
	unsigned long rows = READ_ONCE(key->type) & ~JUMP_TYPE_MASK;

	if (!rows)
		return true;
	return module && !(key->type & JUMP_TYPE_LINKED) && rows >= (unsigned long)module->jump_entries &&
	       rows < (unsigned long)(module->jump_entries + module->num_jump_entries);
}
#else
static bool is_key_sound(const struct static_key *key)
{
	return true;
}
#endif

/* The module's own static key, as the kernel has set it up, or one that the module can have come by. */
GUARDRAIL_CUSTOM(key_sound)
{
	unsigned long p = object_of(action, call);

	if (!p)
		return 0;
	if (!guardrail_check_write(action->domain, p, sizeof(struct static_key))) {
		if (!guardrail_reaches(action->domain, p))
			guardrail_refuse(action, call, "use of", p, guardrail_held_at(p, action->domain), "a reference");
	} else if (!is_key_sound((const struct static_key *)p)) {
		guardrail_refuse(action, call, "use of a static key at", p, "another list of code", "that of its module");
	}
	return 0;
}

/* What runs once turns its static key off later, and stops the kernel where that is off. */
GUARDRAIL_CUSTOM(key_on)
{
	unsigned long p = object_of(action, call), enabled;

	if (p && load_word(p, &enabled) && !(int)enabled)
		guardrail_refuse(action, call, "use of a static key at", p, "one that is off", "one that is on");
	return 0;
}

#define IS_NODE 2UL

/*
 * The head of an array in the driver's memory is an entry, or leads to a node that is the kernel's, and that belongs to this
 * array. What the node leads to is the kernel's then.
 */
GUARDRAIL_CUSTOM(array_sound)
{
	unsigned long p = object_of(action, call), head, node, array = 0;
	struct guardrail_region region;

	if (!p || !load_word((unsigned long)&((struct xarray *)p)->xa_head, &head) || (head & 3) != IS_NODE || head <= PAGE_SIZE)
		return 0;
	node = head - IS_NODE;
	if (!guardrail_region_of(node, &region) || region.start != node || region.end - node < sizeof(struct xa_node) ||
	    guardrail_check_write(action->domain, node, 1) || !load_word((unsigned long)&((struct xa_node *)node)->array, &array) || array != p)
		guardrail_refuse(action, call, "use of an array at", p, "a node that is not its own", "an array");
	return 0;
}
