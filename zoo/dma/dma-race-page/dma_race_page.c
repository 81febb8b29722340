// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A part of a page is mapped; the counter that is written meanwhile lies in its last line.
 *
 * Twin: a part of a page is mapped; the counter that is written meanwhile lies in the line behind
 * it.
 */
#include "zoo.h"
#include "dma.h"

#define OFFSET 256
#define SIZE 512
#ifdef TWIN
#define COUNTER (OFFSET + SIZE)
#else
#define COUNTER (OFFSET + SIZE - 8)
#endif

static noinline void dma_race_page_count(u8 *memory)
{
	WRITE_ONCE(*(u32 *)(memory + COUNTER), 1); /* BUG: dma-race */
}

static int dma_race_page_start(struct device *dev)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	dma_addr_t addr;

	if (!page)
		return -ENOMEM;
	addr = dma_map_page(dev, page, OFFSET, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		__free_page(page);
		return -EIO;
	}
	dma_race_page_count(zoo_hide((u8 *)page_address(page)));
	dma_unmap_page(dev, addr, SIZE, DMA_TO_DEVICE);
	__free_page(page);
	return 0;
}

ZOO_DMA_MODULE(dma_race_page_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: writes into the mapped part of a page");
