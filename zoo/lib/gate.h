/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the drivers share in which faults can be planted: which fault, when, and how; and the faults that are the same in each.
 *
 * Without parameters such a driver is correct. With fault=KIND it makes one mistake, at a request that seed=N chooses. What it
 * does wrong happens before it writes the register that sends the request to the device.
 */
#ifndef ZOO_GATE_H
#define ZOO_GATE_H

#include "zoo.h"
#include <linux/dma-mapping.h>
#include <linux/hash.h>

#define GATE_ENTRIES		32		/* of the device's queue */

enum gate_fault {
	GATE_NONE,
	GATE_RACE,
	GATE_OVERFLOW,
	GATE_UNINIT,
	GATE_UNINIT_DATA,
	GATE_DMA_REUSE,
	GATE_DMA_FREED,
	GATE_USE_AFTER_FREE,
	GATE_DOUBLE_UNMAP,
	GATE_OOB_QUEUE,
	GATE_STALE_LIST,
};

static const char * const gate_faults[] = {
	"none", "race", "overflow", "uninit", "uninit-data", "dma-reuse", "dma-freed", "use-after-free", "double-unmap",
	"oob-queue", "stale-list", NULL
};

static char fault[32];
module_param_string(fault, fault, sizeof(fault), 0644);
MODULE_PARM_DESC(fault, "the mistake to make");
static uint seed;
module_param(seed, uint, 0644);
MODULE_PARM_DESC(seed, "when and how to make it");
static bool planted;
module_param(planted, bool, 0444);
MODULE_PARM_DESC(planted, "it was made");

struct gate_plan {
	spinlock_t lock;
	unsigned int requests;
	/* The rest is under the driver's lock. */
	struct list_head mapped;
	/* What was unmapped last, which a driver must not remember. */
	struct { dma_addr_t addr; u32 bytes; } unmapped[8];
	unsigned int n_unmapped;
};

/* A request that the device has, or a piece of one. Each object of the driver's cache begins with it. */
struct gate_piece {
	struct list_head list;
	u64 value;			/* where it begins or how long it is, as the driver wants it */
	dma_addr_t addr;
};

/* Where a request's data is; the request owns it. */
struct gate_buffer {
	struct list_head mapped;
	dma_addr_t addr;
	void *data;
	void *scratch;
	u32 bytes;
	bool freed;			/* by a planted fault */
};

static void gate_plan_init(struct gate_plan *plan)
{
	spin_lock_init(&plan->lock);
	INIT_LIST_HEAD(&plan->mapped);
}

/* False where there is no memory. */
static bool gate_buffer_make(struct gate_buffer *b, u32 bytes)
{
	b->scratch = NULL;
	b->freed = false;
	b->bytes = bytes;
	b->data = kmalloc(bytes, GFP_ATOMIC);
	return b->data;
}

static void gate_buffer_free(struct gate_buffer *b)
{
	if (!b->freed)
		kfree(b->data);
	kfree(b->scratch);
}

/* Objects whose neighbors a fault may change: hardly anybody else has reclaimable memory of their sizes. */
static struct kmem_cache *gate_cache(const char *name, unsigned int size)
{
	return kmem_cache_create(name, size, 0, SLAB_RECLAIM_ACCOUNT, NULL);
}

static int gate_entries_make(void **entries, size_t size)
{
	unsigned int i;

	for (i = 0; i < GATE_ENTRIES; i++) {
		entries[i] = kzalloc(size, GFP_KERNEL | __GFP_RECLAIMABLE);
		if (!entries[i])
			return -ENOMEM;
	}
	return 0;
}

static void gate_entries_free(void **entries)
{
	unsigned int i;

	for (i = 0; i < GATE_ENTRIES; i++)
		kfree(entries[i]);
}

/* Part variant of a seed, below limit. */
static u32 gate_variant(unsigned int part, u32 limit)
{
	return hash_64(((u64)seed << 8) + part + 1, 32) % limit;
}

/* The mistake to make with this request: once, at a request that the seed chooses. */
static enum gate_fault gate_next(struct gate_plan *plan)
{
	enum gate_fault mistake = GATE_NONE;
	unsigned long flags;
	int found;

	/* Other contexts must be able to come. */
	if (!READ_ONCE(fault[0]) || irqs_disabled())
		return GATE_NONE;
	spin_lock_irqsave(&plan->lock, flags);
	if (!planted && ++plan->requests > 24 + gate_variant(0, 64)) {
		found = sysfs_match_string(gate_faults, fault);
		if (found > 0) {
			mistake = found;
			planted = true;
		}
	}
	spin_unlock_irqrestore(&plan->lock, flags);
	return mistake;
}

/* This request was not the right one. */
static void gate_again(struct gate_plan *plan)
{
	unsigned long flags;

	spin_lock_irqsave(&plan->lock, flags);
	planted = false;
	spin_unlock_irqrestore(&plan->lock, flags);
}

/* Remembers what is mapped, under the same hold of the driver's lock. */
static void gate_note_mapped(struct gate_plan *plan, struct gate_buffer *b)
{
	list_add_tail(&b->mapped, &plan->mapped);
}

/* Remembers what is unmapped, under the same hold of the driver's lock. */
static void gate_note_unmapped(struct gate_plan *plan, struct gate_buffer *b)
{
	unsigned int at = plan->n_unmapped++ % ARRAY_SIZE(plan->unmapped);

	list_del(&b->mapped);
	plan->unmapped[at].addr = b->addr;
	plan->unmapped[at].bytes = b->bytes;
}

/* ---- Planted faults ---- */

/* Gives another context the time to come. Delay loops are not calibrated on every CPU of an emulated machine. */
static void gate_linger(void)
{
	u64 until = ktime_get_ns() + (100 + gate_variant(1, 900)) * NSEC_PER_USEC;

	while (ktime_get_ns() < until)
		cpu_relax();
}

/* Takes the bytes of an entry for its words, and so writes the first word of the entry behind it. The two parts end the entry. */
static noinline void plant_overflow(u32 *parts, size_t size, u32 limit)
{
	unsigned int i, words = (roundup_pow_of_two(size) - size) / 4 + 3;
	u32 *part = zoo_hide(parts);

	for (i = 2; i < words; i++)
		part[i] = 1 + gate_variant(1, limit); /* BUG: overflow */
}

/* Writes behind the queue; what the device gets is what was in the entry before, which must matter. */
static noinline unsigned int plant_oob_queue(struct gate_plan *plan, unsigned int tail, bool matters)
{
	if (!matters) {
		gate_again(plan);
		return 0;
	}
	return GATE_ENTRIES - tail + gate_variant(1, GATE_ENTRIES);
}

/* Makes pieces of a request, gives them up, and goes on with the last of them. */
static noinline u64 plant_stale_list(struct kmem_cache *cache, u64 value, s64 step)
{
	struct gate_piece *piece, *next;
	unsigned int i, pieces = 2 + gate_variant(1, 3);
	LIST_HEAD(list);

	for (i = 1; i <= pieces; i++) {
		piece = kmem_cache_alloc(cache, GFP_ATOMIC);
		if (!piece)
			break;
		piece->value = value + i * step;
		list_add_tail(&piece->list, &list);
	}
	list_for_each_entry_safe(piece, next, &list, list) {
		kmem_cache_free(cache, piece);
		if (list_is_last(&next->list, &list))
			value = piece->value; /* BUG: stale-list */
	}
	return value;
}

/* Gives the buffer back too early and stamps it. */
static noinline void plant_use_after_free(struct gate_buffer *b, unsigned int at)
{
	u32 *data = zoo_hide(b->data);

	kfree(b->data);
	data[at] = 0x7a6f6f00 + seed; /* BUG: use-after-free */
	b->freed = true;
}

/* Stamps a buffer that the device has. */
static noinline void plant_dma_reuse(struct gate_buffer *b, unsigned int at)
{
	((u32 *)b->data)[at] = 0x7a6f6f00 + seed; /* BUG: dma-reuse */
}

/* Gives back a buffer that the device has, and uses its memory otherwise. */
static noinline void plant_dma_freed(struct gate_buffer *b)
{
	kfree(b->data); /* BUG: dma-freed */
	b->freed = true;
	b->scratch = kmalloc(b->bytes, GFP_ATOMIC);
	if (b->scratch)
		memset(b->scratch, 1 + gate_variant(1, 255), b->bytes);
}

static bool gate_is_mapped(const struct gate_plan *plan, dma_addr_t addr)
{
	const struct gate_buffer *b;

	list_for_each_entry(b, &plan->mapped, mapped) {
		if (b->addr == addr)
			return true;
	}
	return false;
}

/* Takes the mapping of a request that is gone for this one's, and unmaps it again. */
static noinline dma_addr_t plant_double_unmap(struct gate_plan *plan, struct device *dev, dma_addr_t own)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(plan->unmapped); i++) {
		unsigned int at = (i + gate_variant(1, 8)) % ARRAY_SIZE(plan->unmapped);
		dma_addr_t addr = plan->unmapped[at].addr;

		if (!plan->unmapped[at].bytes || gate_is_mapped(plan, addr))
			continue;
		dma_unmap_single(dev, addr, plan->unmapped[at].bytes, DMA_TO_DEVICE); /* BUG: double-unmap */
		return addr;
	}
	return own;
}

#endif
