// SPDX-License-Identifier: GPL-2.0-or-later
/* KCSAN's suite: each case lets two threads and their timers run two functions for a while. */
#include "exam.h"
#include <linux/kcsan-checks.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/seqlock.h>
#include <linux/timer.h>

/* The suite takes only its threads from this header, whose functions need CONFIG_TORTURE_TEST. */
#define __LINUX_TORTURE_H
#define torture_init_begin(type, verbose)	true
#define torture_init_end()			do { } while (0)
#define torture_cleanup_begin()			false
#define torture_cleanup_end()			do { } while (0)
#define torture_must_stop()			kthread_should_stop()
#define torture_kthread_stopping(name)		do { } while (0)
#define torture_create_kthread(function, argument, thread) \
	PTR_ERR_OR_ZERO((thread) = kthread_run(function, argument, #function))
#define torture_stop_kthread(name, thread)	((void)kthread_stop(thread))

/* Without KCSAN, the kernel's own has no members. */
struct exam_scoped_access {
	size_t size;
	int type;
};
#define kcsan_scoped_access exam_scoped_access

/* A case takes 200 ms, and its threads pause between two calls: to see a race, it needs not take place often. */
#define CONFIG_KCSAN_REPORT_ONCE_IN_MS		(-300)
#undef might_sleep
#define might_sleep()				usleep_range(500, 1000)

#include "kcsan_test.c"
