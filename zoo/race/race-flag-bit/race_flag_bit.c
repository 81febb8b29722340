// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A work item sets a bit and then stores its result; a timer function reads it when the bit is
 * set.
 *
 * Twin: a work item stores its result and then sets a bit; a timer function reads it when the bit
 * is set.
 */
#include "race.h"

static unsigned long result;
static unsigned long state;
static struct timer_list timer;

static noinline void race_flag_bit_expire(struct timer_list *t)
{
	mod_timer(&timer, jiffies + 1);
	if (test_bit(0, &state)) {
		smp_rmb();
		race_use(READ_ONCE(result)); /* OTHER: */
	}
}

static noinline void race_flag_bit_produce(struct work_struct *work)
{
	msleep(10);
#ifdef TWIN
	WRITE_ONCE(result, 42);
#endif
	smp_mb__before_atomic();
	set_bit(0, &state);
#ifndef TWIN
	WRITE_ONCE(result, 42); /* BUG: data-race */
#endif
}

static DECLARE_WORK(work, race_flag_bit_produce);

static int __init race_flag_bit_init(void)
{
	timer_setup(&timer, race_flag_bit_expire, 0);
	mod_timer(&timer, jiffies + 1);
	schedule_work(&work);
	msleep(50);
	return 0;
}

static void __exit race_flag_bit_exit(void)
{
	cancel_work_sync(&work);
	timer_delete_sync(&timer);
}

module_init(race_flag_bit_init);
module_exit(race_flag_bit_exit);
MODULE_DESCRIPTION("zoo: hands a result over by a bit");
