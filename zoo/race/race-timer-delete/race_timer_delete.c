// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Deletes a timer without waiting for its function and starts its count anew.
 *
 * Twin: deletes a timer, waits for its function and starts its count anew.
 */
#include "race.h"

static struct timer_list timer;
static unsigned long count;

static noinline void race_timer_delete_expire(struct timer_list *t)
{
	mod_timer(&timer, jiffies + 1);
	count++; /* OTHER: */
}

static noinline void race_timer_delete_restart(void)
{
#ifdef TWIN
	timer_delete_sync(&timer);
#else
	timer_delete(&timer);
#endif
	count = 0; /* BUG: data-race */
	mod_timer(&timer, jiffies + 1);
}

static int __init race_timer_delete_init(void)
{
	int i;

	timer_setup(&timer, race_timer_delete_expire, 0);
	mod_timer(&timer, jiffies + 1);
	for (i = 0; i < 3; i++) {
		race_pause();
		race_timer_delete_restart();
	}
	return 0;
}

static void __exit race_timer_delete_exit(void)
{
	timer_delete_sync(&timer);
	race_use(count);
}

module_init(race_timer_delete_init);
module_exit(race_timer_delete_exit);
MODULE_DESCRIPTION("zoo: deletes a timer that counts");
