// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory of several kinds, pages, pools and mappings of registers: what calls do to rights. */
#include <linux/cpumask.h>
#include <linux/mempool.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "border/custom.h"
#include "border/quota.h"
#include "classes/memory.h"
#include "report/report.h"
#include "rights/fields.h"
#include "rights/memory.h"
#include "rights/object.h"

/* No allocation of pages has so many. */
#define ORDER_MOST 20

/* Frees an allocation of one of several kinds: the value is their sum. */
GUARDRAIL_CUSTOM(disown)
{
	unsigned long p = object_of(action, call), kinds = size_of(action, call);
	u32 kind;

	/* NULL and an allocation of no bytes need no release. */
	if (ZERO_OR_NULL_PTR((void *)p))
		return 0;
	for (kind = 1; kind <= kinds && kind < KIND_OWN; kind <<= 1)
		if (kinds & kind && guardrail_take(action->domain, p, kind))
			return 0;
	guardrail_refuse(action, call, "release of", p, "no allocation", "an allocation that begins there");
	return 0;
}

/* An allocation of one of several kinds is about to be replaced, by a function that may fail. */
GUARDRAIL_CUSTOM(owned)
{
	unsigned long p = object_of(action, call), kinds = size_of(action, call);
	u32 kind;

	if (ZERO_OR_NULL_PTR((void *)p))
		return 0;
	for (kind = 1; kind <= kinds && kind < KIND_OWN; kind <<= 1)
		if (kinds & kind && guardrail_check_owner(action->domain, p, kind, NULL))
			return 0;
	guardrail_refuse(action, call, "release of memory at", p, guardrail_held_at(p, action->domain), "owner");
	return 0;
}

/* An allocation of pages is about to be freed: the value is the order. */
GUARDRAIL_CUSTOM(order_owned)
{
	unsigned long p = object_of(action, call), order = size_of(action, call), size;

	if (p && guardrail_check_owner(action->domain, p, GUARDRAIL_KIND_PAGE, &size) && (order > ORDER_MOST || PAGE_SIZE << order > size))
		guardrail_refuse(action, call, "release of more memory than there is at", p, "owner of less", "owner");
	return 0;
}

/* The largest objects that get a guard behind them. Larger ones would take too much memory. */
#define LARGEST_GUARDED 2048

/* The size of slots that are wider than those that objects of a size fill to the last byte; 0 where they fill none so. */
static size_t wider_slot(size_t size)
{
	if (size == 96 || size == 192)
		return size * 4 / 3;
	/* A driver may rely on what the allocator promises: a power of two is at a multiple of itself. */
	return size >= 8 && size <= LARGEST_GUARDED && is_power_of_2(size) ? 2 * size : 0;
}

/*
 * The next object in the slab may be the domain's own. An object that leaves no room in its slot therefore gets a wider one,
 * and only its own bytes are granted.
 */
GUARDRAIL_CUSTOM(guarded_slab)
{
	unsigned long size, flags;

	if (!guardrail_value(&action->pointer, call, &size) || !guardrail_value(&action->size, call, &flags) || !wider_slot(size))
		return 0;
	call->result = (unsigned long)kmalloc(wider_slot(size), (gfp_t)flags);
	return 1;
}

/* The pointer must be neither NULL nor an error. */
GUARDRAIL_CUSTOM(given)
{
	unsigned long p;

	if (guardrail_applies(action, call) && guardrail_value(&action->pointer, call, &p) && IS_ERR_OR_NULL((void *)p))
		guardrail_refuse(action, call, "use of", p, "no object", "one");
	return 0;
}

/* The driver has found a fault in itself and is about to stop the kernel. */
GUARDRAIL_CUSTOM(halt)
{
	if (guardrail_applies(action, call))
		guardrail_refuse(action, call, "stop of the kernel at", call->caller, "the right to fail alone", "that to stop the kernel");
	return 0;
}

/*
 * The driver may write the memory while its function runs, and longer only if it has the right
 * anyway.
 */
GUARDRAIL_CUSTOM(lend)
{
	unsigned long p = object_of(action, call), size = p ? size_of(action, call) : 0;

	return guardrail_lend(action->domain, p, size);
}

GUARDRAIL_CUSTOM(lend_end)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_take(action->domain, p, KIND_LENT);
	return 0;
}

/* Inlined functions count the references of pages. */
static const struct guardrail_field page_fields[] = {
	{ offsetof(struct page, _refcount), sizeof_field(struct page, _refcount) },
};

int guardrail_page_give(u32 domain, struct page *page, unsigned long size)
{
	int err = guardrail_fields_change(domain, (unsigned long)page, page_fields, ARRAY_SIZE(page_fields), GUARDRAIL_WRITE);

	return err ?: guardrail_give(domain, (unsigned long)page_address(page), size, KIND_PAGES);
}

void guardrail_page_take(u32 domain, struct page *page)
{
	guardrail_take(domain, (unsigned long)page_address(page), KIND_PAGES);
	guardrail_revoke(domain, (unsigned long)page, sizeof(*page));
}

/* alloc_pages(): the result is a struct page, the size an order. */
GUARDRAIL_CUSTOM(pages_new)
{
	struct page *page = (struct page *)object_of(action, call);
	unsigned long size = PAGE_SIZE << size_of(action, call);
	int err;

	if (!page)
		return 0;
	err = guardrail_page_give(action->domain, page, size);
	guardrail_check_quota(action, call, (unsigned long)page_address(page), size);
	return err;
}

/* True for a page that the domain has, and where it has 2^order pages if it has allocated them. */
static bool has_page(u32 domain, struct page *page, unsigned long order)
{
	unsigned long size;

	if ((unsigned long)page < VMEMMAP_START || !pfn_valid(page_to_pfn(page)))
		return false;
	if (guardrail_check_owner(domain, (unsigned long)page_address(page), KIND_PAGES, &size))
		return order <= ORDER_MOST && PAGE_SIZE << order <= size;
	return guardrail_check_write(domain, (unsigned long)&page->_refcount, sizeof(page->_refcount));
}

/*
 * __free_pages() and others: the driver does not use the pages any more, but others may. The value is the order. A page
 * without references, which __folio_put() gets, may have been another's: inlined code has dropped its last reference.
 */
GUARDRAIL_CUSTOM(pages_gone)
{
	struct page *page = (struct page *)object_of(action, call);

	if (!page)
		return 0;
	if (!has_page(action->domain, page, size_of(action, call))) {
		guardrail_refuse(action, call, "release of pages at", (unsigned long)page, "no such pages", "these");
		return 0;
	}
	guardrail_page_take(action->domain, page);
	return 0;
}

GUARDRAIL_CUSTOM(folio_gone)
{
	struct page *page = (struct page *)object_of(action, call);

	if (!page)
		return 0;
	if ((unsigned long)page < VMEMMAP_START || !pfn_valid(page_to_pfn(page)) || page_ref_count(page)) {
		guardrail_refuse(action, call, "release of pages at", (unsigned long)page, "pages in use", "some without references");
		return 0;
	}
	guardrail_page_take(action->domain, page);
	return 0;
}

/* True where the domain may write all of these pages, whose addresses the driver keeps. */
static bool all_writable(u32 domain, const struct page *const *pages, unsigned long n)
{
	struct page *page;
	unsigned long i;

	for (i = 0; i < n; i++) {
		page = pointer_at(&pages[i]);
		if ((unsigned long)page < VMEMMAP_START || !pfn_valid(page_to_pfn(page)) ||
		    !guardrail_check_write(domain, (unsigned long)page_address(page), PAGE_SIZE))
			return false;
	}
	return true;
}

/* vmap(pages, number): the driver may write there if it may write to each of the pages. */
GUARDRAIL_CUSTOM(vmapped)
{
	unsigned long p = object_of(action, call), size = (u32)call->args[1] * PAGE_SIZE;

	if (!p)
		return 0;
	if (all_writable(action->domain, (const struct page *const *)call->args[0], (u32)call->args[1]))
		return guardrail_give(action->domain, p, size, GUARDRAIL_KIND_VMALLOC);
	return guardrail_own(action->domain, p, size, GUARDRAIL_KIND_VMALLOC);
}

GUARDRAIL_CUSTOM(percpu_new)
{
	unsigned long p = object_of(action, call), size = size_of(action, call);
	int cpu, err = 0;

	if (!p)
		return 0;
	for_each_possible_cpu(cpu)
		err = err ?: guardrail_give(action->domain, (unsigned long)per_cpu_ptr((void __percpu *)p, cpu), size,
					    KIND_PERCPU);
	return err;
}

GUARDRAIL_CUSTOM(percpu_gone)
{
	unsigned long p = object_of(action, call);
	bool owned = true;
	int cpu;

	if (!p)
		return 0;
	for_each_possible_cpu(cpu)
		owned &= guardrail_take(action->domain, (unsigned long)per_cpu_ptr((void __percpu *)p, cpu), KIND_PERCPU);
	if (!owned)
		guardrail_refuse(action, call, "release of per-CPU memory at", p, "none", "memory that begins there");
	return 0;
}

/* alloc_cpumask_var_node(): the pointer is the new mask. */
GUARDRAIL_CUSTOM(cpumask_new)
{
	unsigned long p = object_of(action, call);

	return p ? guardrail_give(action->domain, p, cpumask_size(), GUARDRAIL_KIND_SLAB) : 0;
}

/* Elements of pools that use kmalloc() or a slab cache; of other pools the size is unknown. */
GUARDRAIL_CUSTOM(mempool_new)
{
	unsigned long p = object_of(action, call);
	mempool_t *pool = (mempool_t *)size_of(action, call);
	size_t size = 0;

	if (!p || !pool)
		return 0;
	if (pool->alloc == mempool_kmalloc)
		size = (size_t)pool->pool_data;
	else if (pool->alloc == mempool_alloc_slab)
		size = kmem_cache_size(pool->pool_data);
	return guardrail_give(action->domain, p, size, KIND_ELEMENT);
}

GUARDRAIL_CUSTOM(mempool_gone)
{
	unsigned long p = object_of(action, call);

	if (p && !guardrail_take(action->domain, p, KIND_ELEMENT))
		guardrail_refuse(action, call, "release of", p, "no element of a pool", "one");
	return 0;
}

/* The value is the kind of allocation that a mapping is. */
static int map(const struct guardrail_action *action, struct guardrail_call *call, unsigned long offset,
	       unsigned long most)
{
	struct pci_dev *dev = (struct pci_dev *)call->args[0];
	unsigned long p = object_of(action, call), size;
	int bar = (int)call->args[1];

	/* A result below the kernel's half is a port number. */
	if (p < KERNEL_HALF || bar < 0 || bar >= PCI_NUM_RESOURCES)
		return 0;
	size = pci_resource_len(dev, bar);
	size = offset < size ? size - offset : 0;
	return guardrail_give(action->domain, p, most && most < size ? most : size, size_of(action, call));
}

/* pci_iomap(device, number, most) */
GUARDRAIL_CUSTOM(pci_map)
{
	return map(action, call, 0, call->args[2]);
}

/* pci_iomap_range(device, number, offset, most) */
GUARDRAIL_CUSTOM(pci_map_range)
{
	return map(action, call, call->args[2], call->args[3]);
}

/* pci_ioremap_bar(device, number) */
GUARDRAIL_CUSTOM(pci_map_bar)
{
	return map(action, call, 0, 0);
}

GUARDRAIL_CUSTOM(pci_unmap)
{
	unsigned long p = object_of(action, call);

	if (p >= KERNEL_HALF && !guardrail_take(action->domain, p, size_of(action, call)))
		guardrail_refuse(action, call, "release of", p, "no mapping", "one");
	return 0;
}

/**
 * struct managed - Memory that a domain loses when its device loses its driver.
 * @p: Begin of the memory.
 * @domain: The domain.
 * @kind: Kind of allocation.
 */
struct managed {
	unsigned long p;
	u32 domain;
	u32 kind;
};

static void managed_gone(void *data)
{
	struct managed *managed = data;

	guardrail_take(managed->domain, managed->p, managed->kind);
	kfree(managed);
}

static int manage(u32 domain, unsigned long p, u32 kind, struct device *dev)
{
	struct managed *managed;

	if (p < KERNEL_HALF)
		return 0;
	managed = kmalloc(sizeof(*managed), GFP_ATOMIC);
	if (!managed)
		return -ENOMEM;
	*managed = (struct managed){ .p = p, .domain = domain, .kind = kind };
	if (!devm_add_action(dev, managed_gone, managed))
		return 0;
	kfree(managed);
	return -ENOMEM;
}

/* The driver owns the memory until it loses the device in the first argument, a struct device. */
GUARDRAIL_CUSTOM(managed)
{
	return manage(action->domain, object_of(action, call), size_of(action, call), (struct device *)call->args[0]);
}

/* The same for a struct pci_dev. */
GUARDRAIL_CUSTOM(pci_managed)
{
	return manage(action->domain, object_of(action, call), size_of(action, call),
		      &((struct pci_dev *)call->args[0])->dev);
}

/* pcim_iomap_regions…(device, bars): the driver owns the mapped ones of the bars until it loses the device. */
GUARDRAIL_CUSTOM(pci_mapped)
{
	struct pci_dev *dev = (struct pci_dev *)object_of(action, call);
	void __iomem *const *table = dev ? pcim_iomap_table(dev) : NULL;
	int i, err = 0;

	for (i = 0; table && i < PCI_STD_NUM_BARS && !err; i++) {
		unsigned long p = (unsigned long)table[i];

		if (p < KERNEL_HALF || !(call->args[1] & BIT(i)))
			continue;
		err = guardrail_give(action->domain, p, pci_resource_len(dev, i), size_of(action, call));
		err = err ?: manage(action->domain, p, size_of(action, call), &dev->dev);
	}
	return err;
}

/* A driver that refused its device keeps no fields of it; the value is the size of its structure. */
GUARDRAIL_CUSTOM(probed)
{
	unsigned long p = object_of(action, call);

	if (p && (int)call->result < 0)
		guardrail_revoke(action->domain, p, size_of(action, call));
	return 0;
}
