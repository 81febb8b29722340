// SPDX-License-Identifier: GPL-2.0-or-later
/* Objects on a stack that the kernel still uses when a function returns, or an entry is ended. */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/sched/task.h>
#include <linux/timer.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "test.h"

#define CUSTOM(name) int guardrail_custom_##name(const struct guardrail_action *action, struct guardrail_call *call)
CUSTOM(work_queued);
CUSTOM(work_done);
CUSTOM(timer_on_stack);
CUSTOM(wait_wanted);
CUSTOM(wait_begins);
CUSTOM(wait_over);
CUSTOM(list_wanted);
CUSTOM(completes);

static const struct guardrail_entry plain = { .domain = ONE, .function = "tested" };
static DECLARE_WAIT_QUEUE_HEAD(queue);
static LIST_HEAD(items);
static unsigned int ran;

static void run(struct work_struct *work)
{
	ran++;
}

static void expire(struct timer_list *timer)
{
	ran++;
}

/* Performs an action as a thunk does: for an object, with a second value. */
static void does(int (*action)(const struct guardrail_action *action, struct guardrail_call *call), void *object, void *more)
{
	struct guardrail_action what = {
		.kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "tested", .pointer.kind = GUARDRAIL_VALUE_CONST,
		.pointer.constant = (s64)object, .size.kind = GUARDRAIL_VALUE_CONST, .size.constant = (s64)more,
	};
	struct guardrail_call call = { .caller = _THIS_IP_ };

	action(&what, &call);
}

static void put_in(struct list_head *new, struct list_head *head)
{
	struct guardrail_action what = { .kind = GUARDRAIL_ACTION_CUSTOM, .domain = ONE, .function = "tested" };
	struct guardrail_call call = {
		.args = { (unsigned long)new, (unsigned long)head, (unsigned long)head->next }, .caller = _THIS_IP_,
	};

	guardrail_custom_list_wanted(&what, &call);
	list_add(new, head);
}

/* The check before the function returns, which must be its last statement. */
#define FRAME_GOES() guardrail_frame_slow((unsigned long)__builtin_frame_address(0), ONE, _THIS_IP_)

/* Longer than a guest with little processor time needs for an entry of this file. */
#define LATER (10 * HZ)
/* Soon after: what an ended entry left behind runs before the test looks. */
#define SOON HZ

/* Passes all objects to the kernel; those that the arguments name are not taken back. */
static noinline void with_objects(bool works, bool timers, bool waits, bool lists)
{
	struct delayed_work work;
	struct timer_list timer;
	struct list_head entry;
	DEFINE_WAIT(wait);

	INIT_DELAYED_WORK_ONSTACK(&work, run);
	does(guardrail_custom_work_queued, &work, (void *)1);
	schedule_delayed_work(&work, LATER);
	timer_setup_on_stack(&timer, expire, 0);
	guardrail_create_object(ONE, (unsigned long)&timer, sizeof(timer), 1 << 10);
	does(guardrail_custom_timer_on_stack, &timer, NULL);
	mod_timer(&timer, jiffies + LATER);
	does(guardrail_custom_wait_wanted, &wait, NULL);
	prepare_to_wait(&queue, &wait, TASK_UNINTERRUPTIBLE);
	does(guardrail_custom_wait_begins, &wait, &queue);
	does(guardrail_custom_wait_wanted, &wait, NULL);
	put_in(&entry, &items);
	__set_current_state(TASK_RUNNING);
	EXPECT(atomic_read(&guardrail_frames) == 4);
	/* They are the kernel's, except for the links of lists. */
	EXPECT(!test_store((unsigned long)&work.work.func, 8, ONE) && !test_store((unsigned long)&timer.function, 8, ONE));
	EXPECT(!test_store((unsigned long)&wait.func, 8, ONE) && test_store((unsigned long)&entry.next, 8, ONE));
	EXPECT(!test_store((unsigned long)&timer.expires - 4, 8, ONE));
	EXPECT(test_store((unsigned long)&timer.expires, 8, ONE) && test_store((unsigned long)&work.cpu, 4, ONE));
	if (!works)
		cancel_delayed_work_sync(&work);
	if (!timers)
		timer_delete_sync(&timer);
	if (!waits) {
		finish_wait(&queue, &wait);
		does(guardrail_custom_wait_over, &wait, NULL);
	}
	if (!lists)
		list_del(&entry);
	if (works && timers && waits && lists) {
		mod_delayed_work(system_wq, &work, SOON);
		mod_timer(&timer, jiffies + SOON);
		guardrail_unwind(ONE);
	}
	FRAME_GOES();
	EXPECT(!atomic_read(&guardrail_frames));
	/* They were reported, and the entry continues. */
	cancel_delayed_work_sync(&work);
	timer_delete_sync(&timer);
	finish_wait(&queue, &wait);
	if (lists)
		list_del(&entry);
}

/* The number of violations in an entry that does this. */
static unsigned long reported(bool works, bool timers, bool waits, bool lists)
{
	unsigned long before = guardrail_violations(ONE);
	struct guardrail_record record;
	int entered = guardrail_enter(&plain, &record);

	if (!EXPECT(entered >= 0))
		return -1;
	if (entered == 0)
		with_objects(works, timers, waits, lists);
	guardrail_leave(&record);
	/* Four violations are stores to memory that the kernel uses. */
	return guardrail_violations(ONE) - before - 4;
}

static noinline void all_are_in_the_frame(void)
{
	struct list_head first, second;
	LIST_HEAD(head);

	put_in(&first, &head);
	put_in(&second, &head);
	FRAME_GOES();
	OPTIMIZER_HIDE_VAR(head.next);
}

static noinline void work_is_done(void)
{
	struct work_struct work;

	INIT_WORK_ONSTACK(&work, run);
	does(guardrail_custom_work_queued, &work, (void *)1);
	EXPECT(atomic_read(&guardrail_frames) == 1);
	does(guardrail_custom_work_done, &work, (void *)1);
	EXPECT(!atomic_read(&guardrail_frames));
	/* No action marks its end before the entry returns. */
	does(guardrail_custom_work_queued, &work, (void *)1);
}

static void frames(void)
{
	unsigned long before = guardrail_violations(ONE);
	struct guardrail_record record;

	ran = 0;
	EXPECT(reported(false, false, false, false) == 0);
	EXPECT(reported(true, false, false, false) == 1);
	EXPECT(reported(false, true, false, false) == 1);
	EXPECT(reported(false, false, true, false) == 1);
	/* The neighbor has to be the driver's. */
	EXPECT(reported(false, false, false, true) == 0);
	EXPECT(!guardrail_grant_fresh(ONE, (unsigned long)&items, sizeof(items)));
	EXPECT(reported(false, false, false, true) == 1);
	EXPECT(reported(true, true, true, false) == 3);
	/* The entry is ended in the middle of it. */
	EXPECT(reported(true, true, true, true) == 0 && !waitqueue_active(&queue) && list_empty(&items) && !atomic_read(&guardrail_frames));
	msleep(2 * MSEC_PER_SEC);
	EXPECT(!ran);
	before = guardrail_violations(ONE);
	if (guardrail_enter(&plain, &record) == 0) {
		work_is_done();
		EXPECT(atomic_read(&guardrail_frames) == 1);
		guardrail_leave(&record);
	}
	if (EXPECT(!atomic_read(&guardrail_frames)) && guardrail_enter(&plain, &record) == 0) {
		all_are_in_the_frame();
		guardrail_leave(&record);
	}
	EXPECT(guardrail_violations(ONE) == before);
	guardrail_revoke(ONE, (unsigned long)&items, sizeof(items));
	test_result("what the kernel holds of frames that are given up", true);
}

static struct completion *awaited;
static DECLARE_COMPLETION(there);
static DECLARE_COMPLETION(back);

static int waits(void *unused)
{
	struct guardrail_record record;

	if (guardrail_enter(&plain, &record) == 0) {
		/* This is below the stack where the domain was entered. */
		awaited = (struct completion *)((unsigned long)&record - 512);
		complete(&there);
		wait_for_completion(&back);
		guardrail_leave(&record);
	}
	return 0;
}

static void completions(void)
{
	unsigned long before = guardrail_violations(ONE);
	struct task_struct *task;

	task = kthread_run(waits, NULL, "guardrail_test");
	if (!EXPECT(!IS_ERR(task)))
		return;
	get_task_struct(task);
	wait_for_completion(&there);
	does(guardrail_custom_completes, awaited, NULL);
	EXPECT(guardrail_violations(ONE) == before);
	complete(&back);
	kthread_stop(task);
	put_task_struct(task);
	does(guardrail_custom_completes, awaited, NULL);
	EXPECT(guardrail_violations(ONE) == before + 1);
	test_result("completions on stacks", true);
}

void test_frames(void)
{
	static const struct guardrail_module module = {
		.magic = GUARDRAIL_MAGIC, .abi = GUARDRAIL_ABI, .domain = ONE, .name = "frames_test",
	};

	EXPECT(!guardrail_module_enter(&module) && !guardrail_grant_call(ONE, (unsigned long)run));
	frames();
	completions();
	guardrail_module_leave(&module);
}
