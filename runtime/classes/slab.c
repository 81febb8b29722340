// SPDX-License-Identifier: GPL-2.0-or-later
/* Slab caches: which cache an object is from, and constructors, which may write their object while they run. */
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "border/custom.h"
#include "classes/classes.h"
#include "classes/slab.h"
#include "recovery/class.h"
#include "rights/memory.h"
#include "rights/object.h"

#define CACHES 256
/* The number of words of a cache that are searched for its constructor. */
#define CACHE_WORDS 40

/*
 * Caches of drivers, the sizes of their objects, and their constructors. A dead cache belongs to a driver that is not
 * loaded any more, and so does its constructor.
 */
static struct {
	unsigned long cache, ctor;
	unsigned int size;
	u32 domain;
	bool dead;
	char name[32];
} caches[CACHES];
/* Protects caches. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(lock);

/* The pointer is the new cache, the second value its constructor, or 0. */
GUARDRAIL_CUSTOM(cache_new)
{
	unsigned long cache = object_of(action, call), flags;
	int i;

	if (!cache || !call->args[0])
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < CACHES && caches[i].cache && caches[i].cache != cache; i++)
		;
	if (i < CACHES) {
		caches[i].cache = cache;
		caches[i].size = kmem_cache_size((struct kmem_cache *)cache);
		caches[i].domain = action->domain;
		caches[i].dead = false;
		caches[i].ctor = size_of(action, call);
		strscpy(caches[i].name, (const char *)call->args[0], sizeof(caches[i].name));
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

/* Finds where a cache stores its constructor; NULL where it is not found. */
static unsigned long *find_ctor(unsigned long cache, unsigned long ctor)
{
	unsigned long *word = (unsigned long *)cache, value;
	int i;

	for (i = 0; i < CACHE_WORDS; i++)
		if (!get_kernel_nofault(value, word + i) && value == ctor)
			return word + i;
	return NULL;
}

/*
 * kmem_cache_create(name, …): a killed driver has not destroyed its caches, and inodes in them may still be used. The
 * new driver gets the caches with their objects, since the kernel has one cache of a name. The value is the
 * constructor.
 */
GUARDRAIL_CUSTOM(cache_comes)
{
	const char *name = (const char *)call->args[0];
	unsigned long ctor = size_of(action, call), *at = NULL, flags;
	bool found = false;
	int i;

	if (!name)
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < CACHES && !found; i++) {
		if (!caches[i].dead || !caches[i].cache || caches[i].domain != action->domain ||
		    strncmp(caches[i].name, name, sizeof(caches[i].name) - 1) || caches[i].size != (unsigned int)call->args[1] ||
		    !caches[i].ctor != !ctor)
			continue;
		at = ctor ? find_ctor(caches[i].cache, caches[i].ctor) : NULL;
		found = !ctor || at;
	}
	if (found) {
		if (at)
			WRITE_ONCE(*at, ctor);
		caches[i - 1].ctor = ctor;
		caches[i - 1].dead = false;
		call->result = caches[i - 1].cache;
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return found;
}

GUARDRAIL_CUSTOM(cache_gone)
{
	unsigned long cache = object_of(action, call), flags;
	int i;

	if (!cache)
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < CACHES; i++)
		if (caches[i].cache == cache)
			caches[i].cache = 0;
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static void caches_dead(u32 domain)
{
	unsigned long flags;
	int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < CACHES; i++)
		caches[i].dead |= caches[i].domain == domain;
	raw_spin_unlock_irqrestore(&lock, flags);
}

static void caches_destroy(u32 domain)
{
	int i;

	for (i = 0; i < CACHES; i++) {
		struct kmem_cache *cache = NULL;
		unsigned long flags;

		raw_spin_lock_irqsave(&lock, flags);
		if (caches[i].domain == domain && caches[i].dead) {
			cache = (struct kmem_cache *)caches[i].cache;
			caches[i].cache = 0;
		}
		raw_spin_unlock_irqrestore(&lock, flags);
		kmem_cache_destroy(cache);
	}
}

bool guardrail_construct(u32 domain, unsigned long start, unsigned long size)
{
	unsigned long ctor, flags;
	bool can = true;
	int i;

	for (i = 0; i < CACHES && can; i++) {
		raw_spin_lock_irqsave(&lock, flags);
		ctor = caches[i].cache && caches[i].domain == domain && caches[i].size == size ? caches[i].ctor : 0;
		can = !ctor || (!caches[i].dead && !guardrail_is_dead(domain));
		raw_spin_unlock_irqrestore(&lock, flags);
		if (ctor && can)
			((void (*)(void *))ctor)((void *)start);
	}
	return can;
}

/* Finds the size of the largest objects of the domain's caches that fit into a slot of the slab; 0 for none. */
static unsigned int object_size(u32 domain, unsigned int slot)
{
	unsigned int size = 0;
	unsigned long flags;
	int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < CACHES; i++)
		if (caches[i].cache && caches[i].ctor && caches[i].domain == domain && caches[i].size <= slot)
			size = max(size, caches[i].size);
	raw_spin_unlock_irqrestore(&lock, flags);
	return size;
}

/*
 * A constructor runs when the cache receives a slab, for any context's allocation, and ends before
 * the object is used. Other functions of the same prototype have an argument that is in no slab;
 * that is left alone.
 */
GUARDRAIL_CUSTOM(construct)
{
	unsigned long p = object_of(action, call);

	if (!p || !virt_addr_valid((void *)p) || !PageSlab(compound_head(virt_to_page((void *)p))))
		return 0;
	return guardrail_lend(action->domain, p, object_size(action->domain, ksize((void *)p)));
}

/* The result of kmem_cache_alloc() is from the cache in the value. Caches 4 GiB apart count as one. */
GUARDRAIL_CUSTOM(of_cache)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_owner_note(action->domain, p, GUARDRAIL_KIND_SLAB, size_of(action, call));
	return 0;
}

/* kmem_cache_free(): an object must return to the cache that it is from. */
GUARDRAIL_CUSTOM(to_cache)
{
	unsigned long p = object_of(action, call);
	u32 cache = p ? guardrail_owner_noted(action->domain, p, GUARDRAIL_KIND_SLAB) : 0;

	if (cache && cache != (u32)size_of(action, call))
		guardrail_refuse(action, call, "release of memory at", p, "an object of another cache", "one of this cache");
	return 0;
}

static struct guardrail_recovery_class slab_class = {
	.name = "slab caches",
	.begin_teardown = caches_dead,
	.prepare_free = guardrail_construct,
	.end_teardown = caches_destroy,
};

void __init guardrail_slab_register(void)
{
	guardrail_recovery_register(&slab_class);
}
