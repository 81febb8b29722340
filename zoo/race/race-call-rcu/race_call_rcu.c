// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Replaces an object that a tasklet reads under RCU, and takes the old one back at once.
 *
 * Twin: replaces an object that a tasklet reads under RCU, and lets call_rcu take the old one
 * back.
 */
#include "race.h"

struct config {
	unsigned long value;
	struct rcu_head rcu;
};

static struct config configs[2];
static struct config __rcu *config;

static noinline void race_call_rcu_run(struct tasklet_struct *t)
{
	struct config *c;

	rcu_read_lock();
	c = rcu_dereference(config);
	race_use(READ_ONCE(c->value)); /* OTHER: */
	rcu_read_unlock();
}

static DECLARE_TASKLET(tasklet, race_call_rcu_run);

static noinline void race_call_rcu_retire(struct rcu_head *rcu)
{
	WRITE_ONCE(container_of(rcu, struct config, rcu)->value, 0); /* BUG: data-race */
}

static int __init race_call_rcu_init(void)
{
	configs[0].value = 1;
	configs[1].value = 2;
	rcu_assign_pointer(config, &configs[0]);
	tasklet_schedule(&tasklet);
	yield(); /* to the tasklet, so that this thread can go on elsewhere meanwhile */
	race_pause();
	rcu_assign_pointer(config, &configs[1]);
#ifdef TWIN
	call_rcu(&configs[0].rcu, race_call_rcu_retire);
#else
	race_call_rcu_retire(&configs[0].rcu);
#endif
	tasklet_schedule(&tasklet);
	yield(); /* to the tasklet, so that this thread can go on elsewhere meanwhile */
	race_pause();
	return 0;
}

static void __exit race_call_rcu_exit(void)
{
	tasklet_kill(&tasklet);
	rcu_barrier();
	race_use(configs[0].value + configs[1].value);
}

module_init(race_call_rcu_init);
module_exit(race_call_rcu_exit);
MODULE_DESCRIPTION("zoo: takes an object back that was replaced under RCU");
