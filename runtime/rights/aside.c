// SPDX-License-Identifier: GPL-2.0-or-later
/* The look aside; rights/aside.h describes it. */
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/vmalloc.h>

#include "rights/aside.h"
#include "rights/table.h"

/* With this in place of the table's address, no tag has an address: nor has that of a store that is not aligned. */
#define NOWHERE (1UL << 60)
/* How far below a store checks look, in bytes. */
#define ASIDE (512UL << 30)
/* How much of the memory behind the begin of an area may have to be looked at. */
#define MUCH (64UL << 30)
/* The image of the kernel and the modules. */
#define IMAGES (2UL << 30)

unsigned long guardrail_aside = NOWHERE;
static unsigned long table_start, table_end;
/* Maps the page of zeros at all of its addresses. */
static pte_t *ptes;
static DEFINE_MUTEX(aside_mutex);

void __init guardrail_aside_init(unsigned long start, unsigned long end)
{
	table_start = start;
	table_end = end;
}

bool guardrail_is_aside(const void *level)
{
	return ptes && level == ptes;
}

void guardrail_aside_exit(void)
{
	free_page((unsigned long)ptes);
	ptes = NULL;
}

/* The bytes of memory that the kernel maps from PAGE_OFFSET on. */
static unsigned long direct(void)
{
	return (unsigned long)high_memory - PAGE_OFFSET;
}

/*
 * Of two addresses that are ASIDE apart, a domain has a right to one at most. Below the memory that is mapped from PAGE_OFFSET
 * on there is a hole. What lies before the table in the area for virtual mappings has memory that is not there below it.
 * What lies behind has the end of the table. The structures of pages and the images have holes of their own.
 */
static bool is_apart(void)
{
	return direct() <= ASIDE && PAGE_OFFSET - ASIDE >= KERNEL_HALF && PAGE_OFFSET + direct() <= VMALLOC_START - ASIDE &&
	       table_start - VMALLOC_START <= ASIDE && table_end - table_start >= 2 * ASIDE &&
	       VMEMMAP_START - VMALLOC_END > ASIDE;
}

/* Maps the zeros for checks of the memory at an address. */
static int share(unsigned long p, unsigned long n)
{
	return guardrail_table_share(tag_of(p - ASIDE), tag_of(p - ASIDE + n - 1), ptes);
}

static pte_t *make_ptes(void)
{
	pte_t *made = (pte_t *)get_zeroed_page(GFP_KERNEL);
	int i;

	for (i = 0; made && i < PTRS_PER_PTE; i++)
		set_pte(&made[i], mk_pte(ZERO_PAGE(0), PAGE_KERNEL_RO));
	return made;
}

void guardrail_aside_prepare(void)
{
	mutex_lock(&aside_mutex);
	if (!ptes && is_apart()) {
		ptes = make_ptes();
		if (ptes && !share(PAGE_OFFSET, direct()) && !share(VMALLOC_START, MUCH) && !share(table_end, MUCH) &&
		    !share(__START_KERNEL_map, IMAGES))
			WRITE_ONCE(guardrail_aside, guardrail_tags - (ASIDE >> GUARDRAIL_SLOT_SHIFT));
	}
	mutex_unlock(&aside_mutex);
}
