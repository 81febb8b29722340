// SPDX-License-Identifier: GPL-2.0-or-later
/* Deletes a timer, waits for its function and starts its count anew. */
#include "../race.h"

static struct timer_list timer;
static unsigned long count;

static noinline void race_timer_delete_expire(struct timer_list *t)
{
	mod_timer(&timer, jiffies + 1);
	count++;
}

static noinline void race_timer_delete_restart(void)
{
	timer_delete_sync(&timer);
	count = 0;
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
MODULE_DESCRIPTION("zoo: deletes a timer that counts, correct");
MODULE_LICENSE("GPL");
