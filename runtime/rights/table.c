// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The memory of the table: addresses for all of it, pages where something was granted.
 *
 * The table lies in the kernel's area for virtual mappings, at a multiple of what one top-level entry of the page
 * tables maps. So all below the top level belongs to this module. The kernel fills the top level of that area at boot
 * for all processes. The levels below are filled here, with pages from a reserve, or from the page allocator's own
 * reserve in contexts that cannot wait. Work in process context refills the reserve. Pages stay until the module is
 * unloaded.
 */
#include <linux/mm.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <asm/pgalloc.h>

#include "base/symbols.h"
#include "rights/aside.h"
#include "rights/table.h"

static unsigned int reserve = 128;
module_param(reserve, uint, 0444);
MODULE_PARM_DESC(reserve, "pages kept for grants in contexts that cannot wait");

unsigned long guardrail_tags __ro_after_init;
DEFINE_PER_CPU(unsigned long, guardrail_table);
EXPORT_PER_CPU_SYMBOL_GPL(guardrail_table);

static struct vm_struct *area;
static unsigned long table_start __ro_after_init;
static unsigned long table_end __ro_after_init;

/*
 * Protects the page tables below the top level, the reserve, both lists of pages and their counts. Taken in any context
 * but NMI. Only the page allocator nests inside, without waiting.
 */
static DEFINE_SPINLOCK(table_lock);
static LIST_HEAD(reserve_pages);
static unsigned long n_reserve;
/* Pages that were put into the page tables, to be freed at the end. */
static LIST_HEAD(used_pages);
static unsigned long n_table;
static unsigned long n_tree;
static unsigned long n_dry;

static void fill_reserve(struct work_struct *work);
static DECLARE_WORK(fill_work, fill_reserve);

/* Fills the reserve to @want pages; false without memory. May sleep. */
static bool fill_to(unsigned long want)
{
	while (READ_ONCE(n_reserve) < want) {
		struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
		unsigned long flags;

		if (!page)
			return false;
		spin_lock_irqsave(&table_lock, flags);
		list_add(&page->lru, &reserve_pages);
		n_reserve++;
		spin_unlock_irqrestore(&table_lock, flags);
	}
	return true;
}

static void fill_reserve(struct work_struct *work)
{
	fill_to(reserve);
}

/* Takes a zeroed page for the page tables. */
static void *take_page(unsigned long *count)
{
	struct page *page = list_first_entry_or_null(&reserve_pages, struct page, lru);

	lockdep_assert_held(&table_lock);
	if (page) {
		list_del(&page->lru);
		n_reserve--;
	} else {
		n_dry++;
		page = alloc_page(GFP_ATOMIC | __GFP_ZERO | __GFP_NOWARN);
		if (!page)
			return NULL;
	}
	list_add(&page->lru, &used_pages);
	++*count;
	return page_address(page);
}

/* Finds the entry for an address in the lowest level but one, with the levels above it. NULL without memory. */
static pmd_t *find_pmd(unsigned long addr)
{
	pgd_t *pgd = pgd_offset_pgd(guardrail_init_mm->pgd, addr);
	p4d_t *p4d = p4d_offset(pgd, addr);
	pud_t *pud;
	void *page;

	if (p4d_none(*p4d)) {
		page = take_page(&n_tree);
		if (!page)
			return NULL;
		smp_wmb();	/* Publish the page after its zeroes. */
		p4d_populate(guardrail_init_mm, p4d, page);
	}
	pud = pud_offset(p4d, addr);
	if (pud_none(*pud)) {
		page = take_page(&n_tree);
		if (!page)
			return NULL;
		smp_wmb();
		pud_populate(guardrail_init_mm, pud, page);
	}
	return pmd_offset(pud, addr);
}

/* Gives the table's page at this address memory, if it has none. */
static int populate_page(unsigned long addr)
{
	pmd_t *pmd = find_pmd(addr);
	pte_t *pte;
	void *page;

	if (!pmd)
		return -ENOMEM;
	if (pmd_none(*pmd)) {
		page = take_page(&n_tree);
		if (!page)
			return -ENOMEM;
		smp_wmb();
		pmd_populate_kernel(guardrail_init_mm, pmd, page);
	}
	pte = pte_offset_kernel(pmd, addr);
	if (pte_none(*pte)) {
		page = take_page(&n_table);
		if (!page)
			return -ENOMEM;
		smp_wmb();
		set_pte(pte, mk_pte(virt_to_page(page), PAGE_KERNEL));
	}
	return 0;
}

int guardrail_populate(unsigned long first, unsigned long last)
{
	unsigned long page, flags;
	bool low = false;
	int err = 0;

	for (page = first & PAGE_MASK; page <= last && !err; page += PAGE_SIZE) {
		if (likely(tag_peek(page) >= 0))
			continue;
		spin_lock_irqsave(&table_lock, flags);
		err = populate_page(page);
		low |= n_reserve < reserve / 2;
		spin_unlock_irqrestore(&table_lock, flags);
	}
	if (low)
		schedule_work(&fill_work);
	return err;
}

int guardrail_prepare(unsigned long p, unsigned long n)
{
	unsigned long pages;

	if (!is_kernel_range(p, n))
		return -EINVAL;
	/* One page of the table needs up to four pages; the reserve is filled for one at a time. */
	for (pages = tag_of(p) & PAGE_MASK; pages <= tag_of(p + n - 1); pages += PAGE_SIZE) {
		if (tag_peek(pages) >= 0)
			continue;
		if (!fill_to(4) || guardrail_populate(pages, pages))
			return -ENOMEM;
		cond_resched();
	}
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_prepare);

int guardrail_table_share(unsigned long first, unsigned long last, void *ptes)
{
	unsigned long addr, flags;
	int err = 0;

	for (addr = first & PMD_MASK; addr <= last && !err; addr += PMD_SIZE) {
		pmd_t *pmd;

		/* One entry needs up to two pages. */
		if (!fill_to(2))
			return -ENOMEM;
		spin_lock_irqsave(&table_lock, flags);
		pmd = find_pmd(addr);
		if (!pmd)
			err = -ENOMEM;
		else if (pmd_none(*pmd))
			pmd_populate_kernel(guardrail_init_mm, pmd, ptes);
		spin_unlock_irqrestore(&table_lock, flags);
		cond_resched();
	}
	return err;
}

/*
 * One walk for two purposes: to visit the pages, and to take the tree apart. Page tables only grow while the module is
 * loaded, so a walk needs no lock.
 */
static int walk_ptes(pmd_t *pmd, unsigned long addr, int (*each)(unsigned long, void *), void *data)
{
	pte_t *pte = pte_offset_kernel(pmd, addr);
	int i, err = 0;

	for (i = 0; i < PTRS_PER_PTE && !err; i++, pte++, addr += PAGE_SIZE) {
		if (pte_none(*pte))
			continue;
		if (each)
			err = each(addr, data);
		else
			pte_clear(guardrail_init_mm, addr, pte);
	}
	cond_resched();
	return err;
}

static int walk_pmds(pud_t *pud, unsigned long addr, int (*each)(unsigned long, void *), void *data)
{
	pmd_t *pmd = pmd_offset(pud, addr);
	int i, err = 0;

	for (i = 0; i < PTRS_PER_PMD && !err; i++, pmd++, addr += PMD_SIZE) {
		if (pmd_none(*pmd))
			continue;
		/* What several entries share is nobody's rights. */
		if (!guardrail_is_aside((void *)pmd_page_vaddr(*pmd)))
			err = walk_ptes(pmd, addr, each, data);
		if (!each)
			pmd_clear(pmd);
	}
	return err;
}

static int walk_puds(p4d_t *p4d, unsigned long addr, int (*each)(unsigned long, void *), void *data)
{
	pud_t *pud = pud_offset(p4d, addr);
	int i, err = 0;

	for (i = 0; i < PTRS_PER_PUD && !err; i++, pud++, addr += PUD_SIZE) {
		if (pud_none(*pud))
			continue;
		err = walk_pmds(pud, addr, each, data);
		if (!each)
			pud_clear(pud);
	}
	return err;
}

static int walk(int (*each)(unsigned long, void *), void *data)
{
	unsigned long addr;
	int err = 0;

	/* With four levels, P4D_SIZE is the reach of a top-level entry. The kernel has filled these: they stay. */
	for (addr = table_start; addr < table_end && !err; addr += P4D_SIZE) {
		p4d_t *p4d = p4d_offset(pgd_offset_pgd(guardrail_init_mm->pgd, addr), addr);

		if (p4d_none(*p4d))
			continue;
		err = walk_puds(p4d, addr, each, data);
		if (!each && pgtable_l5_enabled())
			p4d_clear(p4d);
	}
	return err;
}

int guardrail_each_page(int (*each)(unsigned long page, void *data), void *data)
{
	return walk(each, data);
}

void guardrail_table_usage(struct guardrail_usage *usage)
{
	usage->table_pages = READ_ONCE(n_table);
	usage->tree_pages = READ_ONCE(n_tree);
	usage->reserve = READ_ONCE(n_reserve);
}

unsigned long guardrail_dry(void)
{
	return READ_ONCE(n_dry);
}

/* The top level must exist already: it is copied into every new process. */
static bool __init top_level_is_there(void)
{
	unsigned long addr;

	for (addr = table_start; addr < table_end; addr += PGDIR_SIZE) {
		pgd_t *pgd = pgd_offset_pgd(guardrail_init_mm->pgd, addr);

		if (pgd_none(*pgd) || (!pgtable_l5_enabled() && p4d_none(*p4d_offset(pgd, addr))))
			return false;
	}
	return true;
}

int __init guardrail_table_init(void)
{
	unsigned long size;
	int cpu;
#ifdef VM_SPARSE
	unsigned long flags = VM_SPARSE;
#else
	unsigned long flags = VM_MAP;
#endif

	size = -KERNEL_HALF >> GUARDRAIL_SLOT_SHIFT;
	/* One more, to align the table. With both kinds of paging there is room: half of the area. */
	area = guardrail_get_vm_area(size + PGDIR_SIZE, flags);
	if (!area) {
		pr_err("the kernel's area for virtual mappings has no room for a table of %lu GiB; is guardrail loaded already under another name?\n",
		       size >> 30);
		return -ENOMEM;
	}
	table_start = ALIGN((unsigned long)area->addr, PGDIR_SIZE);
	table_end = table_start + size;
	if (!top_level_is_there()) {
		pr_err("this kernel does not fill the top level of its page tables at boot, so a table could not be seen by every process\n");
		free_vm_area(area);
		return -ENODEV;
	}
	guardrail_tags = table_start - (KERNEL_HALF >> GUARDRAIL_SLOT_SHIFT);
	guardrail_aside_init(table_start, table_end);
	for_each_possible_cpu(cpu)
		per_cpu(guardrail_table, cpu) = guardrail_tags;
	if (!fill_to(reserve)) {
		guardrail_table_exit();
		return -ENOMEM;
	}
	return 0;
}

void guardrail_table_exit(void)
{
	struct page *page, *next;

	cancel_work_sync(&fill_work);
	walk(NULL, NULL);
	/* No CPU caches a page, or where one was mapped. */
	guardrail_flush_tlb(table_start, table_end);
	guardrail_aside_exit();
	list_splice(&reserve_pages, &used_pages);
	list_for_each_entry_safe(page, next, &used_pages, lru)
		__free_page(page);
	free_vm_area(area);
}
