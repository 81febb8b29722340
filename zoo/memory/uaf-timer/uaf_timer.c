// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A session times out and is freed in the timer; the work item queued before reads it afterwards.
 *
 * Twin: a session times out in the timer, which only marks it; the side that runs last frees it.
 */
#include "zoo.h"

/* Of a size that the rest of the kernel rarely asks for, so that nobody takes the freed memory over. */
struct session {
	unsigned int state;
	u8 payload[5000];
};

static struct session *session;
static struct session *report_session;
static struct timer_list expiry;

static noinline void uaf_timer_expire(struct timer_list *t)
{
	struct session *s = READ_ONCE(session);

#ifdef TWIN
	WRITE_ONCE(s->state, 2);
#else
	kfree(s);
#endif
}

static noinline void uaf_timer_report(struct work_struct *work)
{
	struct session *s = report_session;

#ifdef TWIN
	timer_delete_sync(&expiry);
#endif
	zoo_sink = READ_ONCE(s->state); /* BUG: use-after-free */
}

static DECLARE_DELAYED_WORK(report_work, uaf_timer_report);

static int __init uaf_timer_init(void)
{
	session = kmalloc(sizeof(*session), GFP_KERNEL);
	if (!session)
		return -ENOMEM;
	session->state = 1;
	report_session = session;
	timer_setup(&expiry, uaf_timer_expire, 0);
	mod_timer(&expiry, jiffies + msecs_to_jiffies(20));
	schedule_delayed_work(&report_work, msecs_to_jiffies(100));
	/* Both have run when the module is loaded. */
	msleep(200);
	flush_delayed_work(&report_work);
	return 0;
}

static void __exit uaf_timer_exit(void)
{
	cancel_delayed_work_sync(&report_work);
	timer_delete_sync(&expiry);
#ifdef TWIN
	kfree(session);
#endif
}

module_init(uaf_timer_init);
module_exit(uaf_timer_exit);
MODULE_DESCRIPTION("zoo: a timer frees what a work item still reads");
