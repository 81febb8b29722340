// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A kernel thread gets a job by a pointer, and reads it after the function that queued it has
 * freed it.
 *
 * Twin: a kernel thread gets a job by a pointer, and reads it before the function that queued it
 * frees it.
 */
#include "zoo.h"

struct job {
	struct list_head list;
	unsigned long number;
};

static struct kmem_cache *jobs;
static struct job *job;
static struct zoo_thread worker;
static DECLARE_COMPLETION(given);

/* A cache with a constructor is shared with nobody: what was freed stays as it was. */
static void kernel_kthread_construct(void *job)
{
	memset(job, 0, sizeof(struct job));
}

static noinline unsigned long kernel_kthread_number(const struct job *j)
{
	return READ_ONCE(j->number); /* BUG: use-after-free */
}

static void kernel_kthread_work(void)
{
	wait_for_completion(&given);
	zoo_sink = kernel_kthread_number(job);
}

static int __init kernel_kthread_init(void)
{
	int err = -ENOMEM;

	jobs = kmem_cache_create("zoo_jobs", sizeof(struct job), 0, 0, kernel_kthread_construct);
	if (!jobs)
		return -ENOMEM;
	job = kmem_cache_alloc(jobs, GFP_KERNEL);
	if (!job)
		goto destroy;
	job->number = 1;
	err = zoo_thread_start(&worker, kernel_kthread_work);
#ifndef TWIN
	kmem_cache_free(jobs, job);
#endif
	if (err)
#ifdef TWIN
		goto free;
#else
		goto destroy;
#endif
	complete(&given);
	return 0;
#ifdef TWIN
free:
	kmem_cache_free(jobs, job);
#endif
destroy:
	kmem_cache_destroy(jobs);
	return err;
}

static void __exit kernel_kthread_exit(void)
{
	zoo_thread_stop(&worker);
#ifdef TWIN
	kmem_cache_free(jobs, job);
#endif
	kmem_cache_destroy(jobs);
}

module_init(kernel_kthread_init);
module_exit(kernel_kthread_exit);
MODULE_DESCRIPTION("zoo: a kernel thread reads a job that was freed");
