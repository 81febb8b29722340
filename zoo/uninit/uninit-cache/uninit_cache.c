// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Takes an object from its cache and decides on a flag that nobody has set.
 *
 * Twin: decides on a flag that the cache's constructor set when the slab was made; free and alloc
 * keep it.
 */
#include "zoo.h"

struct job {
	u32 id;
	u32 urgent;
	u8 data[120];
};

static struct kmem_cache *jobs;
#ifdef TWIN

/* Runs once for each object of a new slab, not at each allocation. */
static void uninit_cache_ctor(void *p)
{
	struct job *j = p;

	j->id = 0;
	j->urgent = 0;
}
#endif

static noinline void uninit_cache_run(struct job *j)
{
	if (READ_ONCE(j->urgent)) /* BUG: uninit-branch */
		zoo_sink++;
	zoo_sink = j->id;
}

static int __init uninit_cache_init(void)
{
	unsigned int i;

#ifdef TWIN
	jobs = kmem_cache_create("zoo_jobs", sizeof(struct job), 0, SLAB_HWCACHE_ALIGN, uninit_cache_ctor);
#else
	jobs = kmem_cache_create("zoo_jobs", sizeof(struct job), 0, SLAB_HWCACHE_ALIGN, NULL);
#endif
	if (!jobs)
		return -ENOMEM;
	for (i = 0; i < 2; i++) {
		struct job *j = kmem_cache_alloc(jobs, GFP_KERNEL);

		if (!j)
			break;
		j->id = i;
		uninit_cache_run(j);
		kmem_cache_free(jobs, j);
	}
	return 0;
}

static void __exit uninit_cache_exit(void)
{
	kmem_cache_destroy(jobs);
}

module_init(uninit_cache_init);
module_exit(uninit_cache_exit);
MODULE_DESCRIPTION("zoo: decides on a field of a cache object that nobody set");
