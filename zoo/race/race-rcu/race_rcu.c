// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Replaces an object that a timer function reads under RCU, and marks the old one at once.
 *
 * Twin: replaces an object that a timer function reads under RCU, and marks the old one after
 * synchronize_rcu.
 */
#include "race.h"

struct config {
	unsigned long value;
};

static struct config __rcu *config;
static struct timer_list timer;

static noinline void race_rcu_expire(struct timer_list *t)
{
	struct config *c;

	rcu_read_lock();
	c = rcu_dereference(config);
	race_use(READ_ONCE(c->value)); /* OTHER: */
	rcu_read_unlock();
}

static noinline void race_rcu_retire(struct config *old)
{
	WRITE_ONCE(old->value, 0); /* BUG: data-race */
}

static noinline void race_rcu_replace(struct config *new)
{
	struct config *old = rcu_dereference_protected(config, 1);

	new->value = 2;
	rcu_assign_pointer(config, new);
#ifdef TWIN
	synchronize_rcu();
#endif
	race_rcu_retire(old);
#ifndef TWIN
	synchronize_rcu();
#endif
	kfree(old);
}

static int __init race_rcu_init(void)
{
	struct config *first = kzalloc(sizeof(*first), GFP_KERNEL);
	struct config *second = kzalloc(sizeof(*second), GFP_KERNEL);

	if (!first || !second) {
		kfree(first);
		kfree(second);
		return -ENOMEM;
	}
	first->value = 1;
	rcu_assign_pointer(config, first);
	timer_setup(&timer, race_rcu_expire, 0);
	mod_timer(&timer, jiffies + 1);
	race_pause();
	race_rcu_replace(second);
	mod_timer(&timer, jiffies + 1);
	race_pause();
	return 0;
}

static void __exit race_rcu_exit(void)
{
	timer_delete_sync(&timer);
	kfree(rcu_dereference_protected(config, 1));
}

module_init(race_rcu_init);
module_exit(race_rcu_exit);
MODULE_DESCRIPTION("zoo: marks an object that was replaced under RCU");
