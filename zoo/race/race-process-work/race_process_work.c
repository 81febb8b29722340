// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A work item and a process count under the mutexes of two different ports.
 *
 * Twin: a work item and a process count under the mutex of one port.
 */
#include "race.h"

struct port {
	struct mutex mutex;
	unsigned long *count;
};

static struct port ports[2];
static unsigned long count;

static noinline void race_process_work_run(struct work_struct *work)
{
#ifdef TWIN
	struct port *port = &ports[0];
#else
	struct port *port = &ports[1];
#endif

	mutex_lock(&port->mutex);
	(*port->count)++; /* OTHER: */
	mutex_unlock(&port->mutex);
}

static DECLARE_WORK(work, race_process_work_run);

static noinline void race_process_work_add(struct port *port)
{
	mutex_lock(&port->mutex);
	(*port->count)++; /* BUG: data-race */
	mutex_unlock(&port->mutex);
}

static int __init race_process_work_init(void)
{
	int i;

	for (i = 0; i < 2; i++) {
		mutex_init(&ports[i].mutex);
		ports[i].count = &count;
	}
	for (i = 0; i < 3; i++) {
		schedule_work(&work);
		race_process_work_add(&ports[0]);
		race_pause();
	}
	return 0;
}

static void __exit race_process_work_exit(void)
{
	cancel_work_sync(&work);
	race_use(count);
}

module_init(race_process_work_init);
module_exit(race_process_work_exit);
MODULE_DESCRIPTION("zoo: process and work item share a counter");
