// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees pages of which a later part is mapped, and then unmaps it.
 *
 * Twin: unmaps a part of some pages and then frees them.
 */
#include "zoo.h"
#include "dma.h"

#define ORDER 2
#define SIZE 512

static noinline void dma_freed_page_release(struct device *dev, unsigned long pages, dma_addr_t addr)
{
#ifdef TWIN
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
	free_pages(pages, ORDER); /* BUG: dma-freed-while-mapped */
#ifndef TWIN
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
}

static int dma_freed_page_start(struct device *dev)
{
	unsigned long pages = __get_free_pages(GFP_KERNEL | __GFP_ZERO, ORDER);
	dma_addr_t addr;

	if (!pages)
		return -ENOMEM;
	addr = dma_map_single(dev, (void *)(pages + 2 * PAGE_SIZE + 1024), SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		free_pages(pages, ORDER);
		return -EIO;
	}
	dma_freed_page_release(dev, pages, addr);
	return 0;
}

ZOO_DMA_MODULE(dma_freed_page_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: frees pages of which a part is mapped");
