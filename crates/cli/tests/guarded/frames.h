/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Hands objects on its stack to the kernel, each when its parameter is written, and where WRONG is 1 returns while the kernel has them, or does
 * something else that one does not do with such objects. When the module goes it looks whether anybody has one still.
 */
#include <linux/completion.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/timer.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#ifndef WRONG
#error "WRONG is 0 or 1"
#endif

#define LATER (3600 * HZ)

struct item {
	struct list_head list;
	int number;
};

static LIST_HEAD(items);
static DECLARE_WAIT_QUEUE_HEAD(queue);
static struct completion *awaited;
static struct timer_list answer;
static int ran;

static void frames_run(struct work_struct *work)
{
	ran++;
}

static void frames_expire(struct timer_list *timer)
{
}

static noinline int frames_work(void)
{
	struct work_struct work;
	struct delayed_work delayed;
	int before = ran;

	INIT_WORK_ONSTACK(&work, frames_run);
	schedule_work(&work);
	flush_work(&work);
	destroy_work_on_stack(&work);
	INIT_DELAYED_WORK_ONSTACK(&delayed, frames_run);
	schedule_delayed_work(&delayed, LATER);
	schedule_delayed_work(&delayed, LATER);
	if (!WRONG)
		cancel_delayed_work_sync(&delayed);
	destroy_delayed_work_on_stack(&delayed);
	return ran == before + 1 ? 0 : -EINVAL;
}

static noinline int frames_timer(void)
{
	struct timer_list timer;

	timer_setup_on_stack(&timer, frames_expire, 0);
	mod_timer(&timer, jiffies + LATER);
	if (!WRONG)
		timer_delete_sync(&timer);
	return 0;
}

/* Woken each time, so that the entry is taken out of the queue by who wakes. */
static noinline int frames_wait(void)
{
	DEFINE_WAIT(wait);
	int i;

	for (i = 0; i < 3; i++) {
		prepare_to_wait(&queue, &wait, TASK_UNINTERRUPTIBLE);
		wake_up(&queue);
		schedule();
	}
	prepare_to_wait(&queue, &wait, TASK_UNINTERRUPTIBLE);
	prepare_to_wait(&queue, &wait, TASK_UNINTERRUPTIBLE);
	__set_current_state(TASK_RUNNING);
	if (!WRONG)
		finish_wait(&queue, &wait);
	return 0;
}

static noinline int frames_queue(void)
{
	DECLARE_WAITQUEUE(wait, current);

	add_wait_queue(&queue, &wait);
	if (!WRONG)
		remove_wait_queue(&queue, &wait);
	return 0;
}

static noinline int frames_list(void)
{
	struct item item = { .number = 1 }, other = { .number = 2 };
	LIST_HEAD(own);

	/* Both go with the frame. */
	list_add(&other.list, &own);
	list_add(&item.list, &items);
	list_first_entry(&items, struct item, list)->number++;
	if (!WRONG)
		list_del(&item.list);
	return list_first_entry(&own, struct item, list)->number == 2 ? 0 : -EINVAL;
}

/* Whoever is put in a second time is still there. */
static noinline int frames_twice(void)
{
	static struct item item;

	list_add(&item.list, &items);
	if (WRONG)
		list_add(&item.list, &items);
	list_del(&item.list);
	return 0;
}

static noinline void frames_write(struct work_struct *work)
{
	WRITE_ONCE(work->func, frames_run);
}

/* Work is none of the driver's while it is queued, wherever it lies. */
static noinline int frames_store(void)
{
	struct delayed_work delayed;

	INIT_DELAYED_WORK_ONSTACK(&delayed, frames_run);
	frames_write(&delayed.work);
	schedule_delayed_work(&delayed, LATER);
	if (WRONG)
		frames_write(&delayed.work);
	cancel_delayed_work_sync(&delayed);
	frames_write(&delayed.work);
	destroy_delayed_work_on_stack(&delayed);
	return 0;
}

static noinline void frames_answer(struct timer_list *timer)
{
	complete(awaited);
	/* The call is not the last deed, so that this function is in the trace. */
	ran++;
}

/* Who does not wait for long enough is gone when the answer comes. */
static noinline int frames_complete(void)
{
	DECLARE_COMPLETION_ONSTACK(done);

	awaited = &done;
	mod_timer(&answer, jiffies + HZ / 5);
	return wait_for_completion_timeout(&done, WRONG ? 1 : LATER) || WRONG ? 0 : -EINVAL;
}

static int frames_set(const char *value, const struct kernel_param *param)
{
	int (*function)(void) = param->arg;
	int err = function();

	/* The call is not the last deed. */
	ran++;
	return err;
}

static const struct kernel_param_ops ops = { .set = frames_set };
module_param_cb(work, &ops, frames_work, 0200);
module_param_cb(timer, &ops, frames_timer, 0200);
module_param_cb(wait, &ops, frames_wait, 0200);
module_param_cb(queue, &ops, frames_queue, 0200);
module_param_cb(list, &ops, frames_list, 0200);
module_param_cb(twice, &ops, frames_twice, 0200);
module_param_cb(store, &ops, frames_store, 0200);
module_param_cb(complete, &ops, frames_complete, 0200);

static int __init frames_init(void)
{
	timer_setup(&answer, frames_answer, 0);
	return 0;
}

static void __exit frames_exit(void)
{
	timer_delete_sync(&answer);
	if (waitqueue_active(&queue))
		pr_err("frames: left in the queue\n");
	/* What was to be put in twice is there once. */
	if (!list_is_singular(&items) && !list_empty(&items))
		pr_err("frames: left in the list\n");
}

module_init(frames_init);
module_exit(frames_exit);
MODULE_DESCRIPTION("guardrail: what the kernel has of a stack");
MODULE_LICENSE("GPL");
