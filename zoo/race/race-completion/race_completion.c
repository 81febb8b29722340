// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A work item completes and then stores its result, which the waiting process reads.
 *
 * Twin: a work item stores its result and then completes; the waiting process reads it.
 */
#include "race.h"

static DECLARE_COMPLETION(done);
static unsigned long result;

static noinline void race_completion_run(struct work_struct *work)
{
#ifdef TWIN
	WRITE_ONCE(result, 42);
#endif
	complete(&done);
#ifndef TWIN
	WRITE_ONCE(result, 42); /* BUG: data-race */
#endif
}

static DECLARE_WORK(work, race_completion_run);

static noinline void race_completion_take(void)
{
	wait_for_completion(&done);
	race_use(READ_ONCE(result)); /* OTHER: */
}

static int __init race_completion_init(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		schedule_work(&work);
		race_completion_take();
		race_pause();
	}
	return 0;
}

static void __exit race_completion_exit(void)
{
	cancel_work_sync(&work);
}

module_init(race_completion_init);
module_exit(race_completion_exit);
MODULE_DESCRIPTION("zoo: hands a result over by a completion");
