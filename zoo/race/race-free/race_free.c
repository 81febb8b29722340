// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Takes sessions away from a timer function, and frees them at once.
 *
 * Twin: waits for the timer function, takes each session away from it and frees it.
 */
#include "race.h"
#include <linux/delay.h>

struct session {
	unsigned long state;
};

static struct session *session;
static struct timer_list timer;

static noinline void race_free_expire(struct timer_list *t)
{
	struct session *s = READ_ONCE(session); /* OTHER: */

	/* The device takes its time, longer than a busy host lets the other CPU wait. */
	mdelay(20);
	if (s)
		race_use(READ_ONCE(s->state));
	mod_timer(&timer, jiffies + msecs_to_jiffies(80));
}

static noinline void race_free_close(struct session *s)
{
#ifdef TWIN
	timer_delete_sync(&timer);
#endif
	WRITE_ONCE(session, NULL); /* BUG: data-race */
	kfree(s);
}

static int __init race_free_init(void)
{
	int i;

	timer_setup(&timer, race_free_expire, 0);
	for (i = 0; i < 8; i++) {
		struct session *s = kzalloc(sizeof(*s), GFP_KERNEL);

		if (!s)
			return -ENOMEM;
		WRITE_ONCE(session, s);
		/* Expires once before the session is closed, and next long after it. */
		mod_timer(&timer, jiffies + 1);
		msleep(60);
		race_free_close(s);
		timer_delete_sync(&timer);
	}
	return 0;
}

static void __exit race_free_exit(void)
{
	timer_delete_sync(&timer);
}

module_init(race_free_init);
module_exit(race_free_exit);
MODULE_DESCRIPTION("zoo: frees what a timer function may have just looked up");
