/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the zoo's modules share: headers, the license, a sink, a thread that may die of its bug.
 */
#ifndef ZOO_H
#define ZOO_H

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/interrupt.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

MODULE_LICENSE("GPL");

/* Hides from the compiler where a value comes from, so that it cannot reason a planted bug away. */
#define zoo_hide(x)				\
({						\
	typeof(x) __hidden = (x);		\
	OPTIMIZER_HIDE_VAR(__hidden);		\
	__hidden;				\
})

/* Where results go: a volatile store that no branch can be folded into. */
static volatile unsigned long zoo_sink __maybe_unused;

/*
 * A thread of the module's own. A bug that faults kills this thread and neither insmod nor rmmod,
 * so the module still unloads.
 */
struct zoo_thread {
	struct task_struct *task;
	struct completion started;
	void (*body)(void);
};

static __maybe_unused int zoo_thread_main(void *data)
{
	struct zoo_thread *t = data;

	complete(&t->started);
	t->body();
	return 0;
}

static inline int zoo_thread_start(struct zoo_thread *t, void (*body)(void))
{
	init_completion(&t->started);
	t->body = body;
	t->task = kthread_create(zoo_thread_main, t, "zoo");
	if (IS_ERR(t->task))
		return PTR_ERR(t->task);
	get_task_struct(t->task);
	wake_up_process(t->task);
	wait_for_completion(&t->started);
	return 0;
}

static inline void zoo_thread_stop(struct zoo_thread *t)
{
	kthread_stop(t->task);
	put_task_struct(t->task);
}

#endif
