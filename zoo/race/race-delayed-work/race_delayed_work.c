// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Cancels delayed work without waiting for it and starts its count anew.
 *
 * Twin: cancels delayed work, waits for it and starts its count anew.
 */
#include "race.h"

static void race_delayed_work_run(struct work_struct *work);
static DECLARE_DELAYED_WORK(work, race_delayed_work_run);
static unsigned long count;

static noinline void race_delayed_work_run(struct work_struct *w)
{
	schedule_delayed_work(&work, 1);
	count++; /* OTHER: */
}

static noinline void race_delayed_work_restart(void)
{
#ifdef TWIN
	cancel_delayed_work_sync(&work);
#else
	cancel_delayed_work(&work);
#endif
	count = 0; /* BUG: data-race */
	schedule_delayed_work(&work, 1);
}

static int __init race_delayed_work_init(void)
{
	int i;

	schedule_delayed_work(&work, 1);
	for (i = 0; i < 3; i++) {
		race_pause();
		race_delayed_work_restart();
	}
	return 0;
}

static void __exit race_delayed_work_exit(void)
{
	cancel_delayed_work_sync(&work);
	race_use(count);
}

module_init(race_delayed_work_init);
module_exit(race_delayed_work_exit);
MODULE_DESCRIPTION("zoo: cancels delayed work that counts");
