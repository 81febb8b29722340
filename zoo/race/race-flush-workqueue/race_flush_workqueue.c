// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Queues a work item, flushes another queue and reads the item's result.
 *
 * Twin: queues a work item, flushes its queue and reads the item's result.
 */
#include "race.h"

static struct workqueue_struct *fast, *slow;
static unsigned long result;

static noinline void race_flush_workqueue_run(struct work_struct *work)
{
	result++; /* OTHER: */
}

static DECLARE_WORK(work, race_flush_workqueue_run);

static noinline void race_flush_workqueue_take(void)
{
#ifdef TWIN
	flush_workqueue(slow);
#else
	flush_workqueue(fast);
#endif
	race_use(READ_ONCE(result)); /* BUG: data-race */
}

static int __init race_flush_workqueue_init(void)
{
	int i;

	fast = alloc_ordered_workqueue("zoo-fast", 0);
	if (!fast)
		return -ENOMEM;
	slow = alloc_ordered_workqueue("zoo-slow", 0);
	if (!slow) {
		destroy_workqueue(fast);
		return -ENOMEM;
	}
	for (i = 0; i < 3; i++) {
		queue_work(slow, &work);
		race_pause();
		race_flush_workqueue_take();
	}
	return 0;
}

static void __exit race_flush_workqueue_exit(void)
{
	destroy_workqueue(slow);
	destroy_workqueue(fast);
	race_use(result);
}

module_init(race_flush_workqueue_init);
module_exit(race_flush_workqueue_exit);
MODULE_DESCRIPTION("zoo: reads the result of a work item after a flush");
