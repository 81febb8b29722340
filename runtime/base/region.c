// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Pieces of memory; base/region.h describes them.
 *
 * How far apart the objects of a slab lie is known to the allocator alone. It is asked where some addresses belong:
 * the first that does not belong to the first object is the begin of the second.
 */
#include <linux/kfence.h>
#include <linux/mm.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/static_call.h>

#include "base/address.h"
#include "base/region.h"
#include "base/symbols.h"

/* What the allocator may lay between objects beside their size: alignment, and the link of free ones. */
#define MOST_GAP 128
/* How many allocations in a row KFENCE may take. */
#define MOST_SAMPLED 16
/* How far behind a pointer into a stack its object reaches at most, in bytes. */
#define ON_STACK 512

/**
 * struct object_info - The begin of the kernel's struct kmem_obj_info (mm/slab.h).
 * @ptr: What was asked for.
 * @slab: Its slab.
 * @object: Begin of the object.
 * @offset: Distance of the data from there.
 * @cache: Its cache.
 * @rest: Room for what the kernel stores behind it.
 */
struct object_info {
	void *ptr;
	void *slab;
	void *object;
	unsigned long offset;
	struct kmem_cache *cache;
	unsigned long rest[59];
};

/* Prototype only: the static call takes its type from this. */
void guardrail_t_object_info(struct object_info *info, void *object, void *slab);

DEFINE_STATIC_CALL_NULL(guardrail_object_info, guardrail_t_object_info);

/* The begin of the object that has an address of a slab, which is no waste behind the last object. */
static unsigned long object_at(unsigned long addr, struct page *slab, struct kmem_cache **cache)
{
	struct object_info info = { 0 };

	static_call(guardrail_object_info)(&info, (void *)addr, slab);
	*cache = info.cache;
	return (unsigned long)info.object;
}

/* Finds the distance of the objects of a slab; 0 where it has but one or two. */
static unsigned long distance(unsigned long base, unsigned long size, struct page *slab)
{
	struct kmem_cache *cache;
	unsigned long least, low, high;

	if (object_at(base, slab, &cache) != base || !cache)
		return 0;
	least = ALIGN(kmem_cache_size(cache), 8);
	/* Beyond this, an address might be waste, of which the allocator warns. */
	if (!least || 2 * (least + MOST_GAP) > size)
		return 0;
	low = least;
	high = least + MOST_GAP;
	if (object_at(base + high, slab, &cache) == base)
		return 0;
	while (low < high) {
		unsigned long middle = ALIGN_DOWN((low + high) / 2, 8);

		if (object_at(base + middle, slab, &cache) == base)
			low = middle + 8;
		else
			high = middle;
	}
	return low;
}

static bool in_slab(unsigned long addr, struct page *slab, struct guardrail_region *region)
{
	unsigned long base = (unsigned long)page_address(slab), size = page_size(slab), step = distance(base, size, slab), n;

	if (!step) {
		*region = (struct guardrail_region){ base, base + size };
		return true;
	}
	n = (addr - base) / step;
	if (n >= size / step)
		return false;
	*region = (struct guardrail_region){ base + n * step, base + (n + 1) * step };
	return true;
}

static bool in_linear_mapping(unsigned long addr, struct guardrail_region *region)
{
	struct page *page = compound_head(virt_to_page((void *)addr));
	unsigned long base = (unsigned long)page_address(page);

	if (PageSlab(page))
		return in_slab(addr, page, region);
	*region = (struct guardrail_region){ base, base + page_size(page) };
	return addr >= region->start && addr < region->end;
}

static bool on_current_stack(unsigned long addr)
{
	struct stack_info info;

	return addr - (unsigned long)task_stack_page(current) < THREAD_SIZE || guardrail_stack_of(addr, &info);
}

bool guardrail_is_memory(unsigned long addr)
{
	if (addr < KERNEL_HALF)
		return false;
	return virt_addr_valid((void *)addr) || on_current_stack(addr) || guardrail_is_image(addr);
}

bool guardrail_region_of(unsigned long addr, struct guardrail_region *region)
{
	if (addr < KERNEL_HALF)
		return false;
	if (guardrail_is_image(addr) && guardrail_symbol_range(addr, &region->start, &region->end))
		return true;
	if (virt_addr_valid((void *)addr))
		return in_linear_mapping(addr, region);
	if (on_current_stack(addr)) {
		*region = (struct guardrail_region){ addr & ~7UL, (addr & ~7UL) + ON_STACK };
		return true;
	}
	*region = (struct guardrail_region){ addr & PAGE_MASK, (addr & PAGE_MASK) + PAGE_SIZE };
	return true;
}

/* An object beside others; NULL without memory. An object that KFENCE guards has a page of its own, and is no measure. */
static void *__init object_of(size_t size)
{
	void *object = kmalloc(size, GFP_KERNEL);
	int tries;

	for (tries = 0; object && is_kfence_address(object) && tries < MOST_SAMPLED; tries++) {
		kfree(object);
		object = kmalloc(size, GFP_KERNEL);
	}
	return object;
}

int __init guardrail_region_init(void)
{
	unsigned long function = guardrail_find_symbol("__kmem_obj_info"), object;
	struct guardrail_region region;
	bool right;

	if (!function) {
		pr_err("this kernel has no symbol '__kmem_obj_info', which says where objects of its allocator begin\n");
		return -ENODEV;
	}
	static_call_update(guardrail_object_info, (typeof(&guardrail_t_object_info))function);
	object = (unsigned long)object_of(64);
	right = object && guardrail_region_of(object + 40, &region) && region.start == object && region.end == object + 64;
	kfree((void *)object);
	if (!right)
		pr_err("this kernel's __kmem_obj_info() does not describe objects as expected; it is too new\n");
	return right ? 0 : -ENODEV;
}
