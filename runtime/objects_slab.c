// SPDX-License-Identifier: GPL-2.0-or-later
/* Constructors of slab caches: while one runs, the object that it is to construct is the driver's to write. */
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "objects.h"

#define CACHES 256

/* Caches with a constructor, and how large their objects are. */
static struct {
	unsigned long cache;
	unsigned int size;
	u32 domain;
} caches[CACHES];
static DEFINE_RAW_SPINLOCK(lock);

/* The pointer is the new cache, the second value its constructor. */
GUARDRAIL_CUSTOM(cache_new)
{
	unsigned long cache = object_of(action, frame), flags;
	int i;

	if (!cache || !size_of(action, frame))
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < CACHES && caches[i].cache; i++)
		;
	if (i < CACHES) {
		caches[i].cache = cache;
		caches[i].size = kmem_cache_size((struct kmem_cache *)cache);
		caches[i].domain = action->domain;
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

GUARDRAIL_CUSTOM(cache_gone)
{
	unsigned long cache = object_of(action, frame), flags;
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

/* Of the caches of a domain, the largest objects that fit into a slot; 0 where none does. */
static unsigned int object_size(u32 domain, unsigned int slot)
{
	unsigned int size = 0;
	unsigned long flags;
	int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < CACHES; i++)
		if (caches[i].cache && caches[i].domain == domain && caches[i].size <= slot)
			size = max(size, caches[i].size);
	raw_spin_unlock_irqrestore(&lock, flags);
	return size;
}

/*
 * A constructor runs when the cache gets a slab, whoever's allocation that is for, and ends before the object is anybody's. What a
 * function of the same prototype is given that is in no slab is left as it is.
 */
GUARDRAIL_CUSTOM(construct)
{
	unsigned long p = object_of(action, frame);

	if (!p || !virt_addr_valid((void *)p) || !PageSlab(compound_head(virt_to_page((void *)p))))
		return 0;
	return guardrail_lend(action->domain, p, object_size(action->domain, ksize((void *)p)));
}
