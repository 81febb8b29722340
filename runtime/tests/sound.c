// SPDX-License-Identifier: GPL-2.0-or-later
/* Locks and static keys that a driver may have forged: the kernel follows what they lead to. */
#include <linux/jump_label.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>

#include "test.h"

CUSTOM(key_sound);

typedef int (*custom_t)(const struct guardrail_action *action, struct guardrail_call *call);

static const struct guardrail_action action = {
	.kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "test", .pointer = { .kind = GUARDRAIL_VALUE_WORD },
};

/* True where nothing is reported of a wait for the lock. */
static bool is_sound(custom_t custom, unsigned long lock)
{
	struct guardrail_call call = { .args = { lock } };
	unsigned long before = guardrail_violations(ONE);

	custom(&action, &call);
	return guardrail_violations(ONE) == before;
}

#ifdef CONFIG_JUMP_LABEL
static DEFINE_STATIC_KEY_FALSE(own_key);

/* The key of this module as it is, with rows that are elsewhere, and with a list of others. */
static void keys(void)
{
	struct static_key *key = &own_key.key;
	unsigned long rows = key->type, forged[8] = { 0 };

	if (static_branch_unlikely(&own_key))
		pr_info("# a branch that is not taken\n");
	EXPECT(rows & ~3UL);
	EXPECT(!guardrail_grant(ONE, (unsigned long)key, sizeof(*key)));
	EXPECT(is_sound(guardrail_custom_key_sound, (unsigned long)key));
	key->type = (unsigned long)forged | (rows & 1);
	EXPECT(!is_sound(guardrail_custom_key_sound, (unsigned long)key));
	key->type = rows | 2;
	EXPECT(!is_sound(guardrail_custom_key_sound, (unsigned long)key));
	key->type = rows;
	EXPECT(!guardrail_revoke(ONE, (unsigned long)key, sizeof(*key)));
	test_result("forged static keys", true);
}
#else
static void keys(void) { }
#endif

#ifndef CONFIG_PREEMPT_RT
#ifdef FIRST_WAITER
/* A ring of one waiter in the kernel's memory and in that of a domain, and what is no ring. */
static void waiters(void *place, unsigned long lock, custom_t custom)
{
	struct list_head *node = kzalloc(sizeof(*node), GFP_KERNEL), **first = place;

	if (!EXPECT(node))
		return;
	INIT_LIST_HEAD(node);
	EXPECT(is_sound(custom, lock));
	*first = node;
	EXPECT(is_sound(custom, lock));
	EXPECT(!guardrail_grant(ONE, (unsigned long)node, sizeof(*node)));
	EXPECT(!is_sound(custom, lock));
	EXPECT(!guardrail_revoke(ONE, (unsigned long)node, sizeof(*node)));
	node->next = NULL;
	EXPECT(!is_sound(custom, lock));
	*first = (void *)0xdead000000000000;
	EXPECT(!is_sound(custom, lock));
	*first = NULL;
	kfree(node);
}

#define WAITERS(lock, custom) waiters(&(lock).first_waiter, (unsigned long)&(lock), custom)
#else
/* A list of another head, and one of a node in the memory of a domain. */
static void lists(struct list_head *head, unsigned long lock, custom_t custom)
{
	struct list_head *node = kzalloc(sizeof(*node), GFP_KERNEL), elsewhere;

	if (!EXPECT(node))
		return;
	INIT_LIST_HEAD(&elsewhere);
	EXPECT(is_sound(custom, lock));
	list_add(node, head);
	EXPECT(is_sound(custom, lock));
	EXPECT(!guardrail_grant(ONE, (unsigned long)node, sizeof(*node)));
	EXPECT(!is_sound(custom, lock));
	EXPECT(!guardrail_revoke(ONE, (unsigned long)node, sizeof(*node)));
	list_del(node);
	head->next = head->prev = &elsewhere;
	EXPECT(!is_sound(custom, lock));
	head->next = head->prev = (void *)0xdead000000000000;
	EXPECT(!is_sound(custom, lock));
	INIT_LIST_HEAD(head);
	kfree(node);
}

#define WAITERS(lock, custom) lists(&(lock).wait_list, (unsigned long)&(lock), custom)
#endif

/* The pointer to the owner, which may lead anywhere, has flags in its lower bits. */
static void owners(atomic_long_t *owner, unsigned long lock, custom_t custom, unsigned long flags)
{
	const unsigned long forged[] = { 0xdead000000000000, 0xffff800000000000, (unsigned long)&test_sound & ~7UL };
	int i;

	for (i = 0; i < ARRAY_SIZE(forged); i++) {
		atomic_long_set(owner, forged[i] | flags);
		EXPECT(!is_sound(custom, lock));
	}
	atomic_long_set(owner, (unsigned long)current->parent | flags);
	EXPECT(is_sound(custom, lock));
	atomic_long_set(owner, (unsigned long)current | flags);
}

static void locks(void)
{
	static DEFINE_MUTEX(mutex);
	static DECLARE_RWSEM(sem);

	owners(&mutex.owner, (unsigned long)&mutex, guardrail_custom_mutex_wanted, 1);
	WAITERS(mutex, guardrail_custom_mutex_wanted);
	atomic_long_set(&mutex.owner, 0);
	owners(&sem.owner, (unsigned long)&sem, guardrail_custom_exclusive_wanted, 2);
	WAITERS(sem, guardrail_custom_shared_wanted);
	atomic_long_set(&sem.owner, 0);
	test_result("forged locks", true);
}
#else
static void locks(void) { }
#endif

void test_sound(void)
{
	keys();
	locks();
}
