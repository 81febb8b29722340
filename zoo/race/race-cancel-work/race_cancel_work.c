// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clears at unload what a work item counts, and then cancels the work item.
 *
 * Twin: cancels the work item at unload, and then clears what it counted.
 */
#include "race.h"

static unsigned long count;

static noinline void race_cancel_work_run(struct work_struct *work)
{
	count++; /* OTHER: */
}

static DECLARE_WORK(work, race_cancel_work_run);

static noinline void race_cancel_work_clear(void)
{
	WRITE_ONCE(count, 0); /* BUG: data-race */
}

static int __init race_cancel_work_init(void)
{
	schedule_work(&work);
	race_pause();
	schedule_work(&work);
	race_pause();
	return 0;
}

static void __exit race_cancel_work_exit(void)
{
#ifdef TWIN
	cancel_work_sync(&work);
#endif
	race_cancel_work_clear();
#ifndef TWIN
	cancel_work_sync(&work);
#endif
}

module_init(race_cancel_work_init);
module_exit(race_cancel_work_exit);
MODULE_DESCRIPTION("zoo: cleans up what a work item counts");
