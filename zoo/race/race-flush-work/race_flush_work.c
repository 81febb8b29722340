// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sleeps until a work item has surely stored its result, and reads it.
 *
 * Twin: flushes a work item and reads its result.
 */
#include "race.h"

static unsigned long result;

static noinline void race_flush_work_run(struct work_struct *work)
{
	result++; /* OTHER: */
}

static DECLARE_WORK(work, race_flush_work_run);

static noinline void race_flush_work_take(void)
{
#ifdef TWIN
	flush_work(&work);
#else
	msleep(20);
#endif
	race_use(READ_ONCE(result)); /* BUG: data-race */
}

static int __init race_flush_work_init(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		schedule_work(&work);
		race_flush_work_take();
	}
	return 0;
}

static void __exit race_flush_work_exit(void)
{
	flush_work(&work);
}

module_init(race_flush_work_init);
module_exit(race_flush_work_exit);
MODULE_DESCRIPTION("zoo: reads the result of a work item");
