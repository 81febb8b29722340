// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clears at unload what a tasklet counts, and then kills the tasklet.
 *
 * Twin: kills the tasklet at unload, and then clears what it counted.
 */
#include "race.h"

static unsigned long count;

static noinline void race_tasklet_exit_run(struct tasklet_struct *t)
{
	count++; /* OTHER: */
}

static DECLARE_TASKLET(tasklet, race_tasklet_exit_run);

static noinline void race_tasklet_exit_clear(void)
{
	WRITE_ONCE(count, 0); /* BUG: data-race */
}

static int __init race_tasklet_exit_init(void)
{
	tasklet_schedule(&tasklet);
	yield(); /* to the tasklet, so that this thread can go on elsewhere meanwhile */
	race_pause();
	tasklet_schedule(&tasklet);
	yield(); /* to the tasklet, so that this thread can go on elsewhere meanwhile */
	race_pause();
	return 0;
}

static void __exit race_tasklet_exit_exit(void)
{
#ifdef TWIN
	tasklet_kill(&tasklet);
#endif
	race_tasklet_exit_clear();
#ifndef TWIN
	tasklet_kill(&tasklet);
#endif
}

module_init(race_tasklet_exit_init);
module_exit(race_tasklet_exit_exit);
MODULE_DESCRIPTION("zoo: cleans up what a tasklet counts");
