// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a buffer for the device to read and unmaps it as one that the device has written.
 *
 * Twin: maps and unmaps a buffer for the device to read.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 128

static noinline void dma_mismatch_direction_done(struct device *dev, struct page *page, dma_addr_t addr)
{
#ifdef TWIN
	dma_unmap_page(dev, addr, SIZE, DMA_TO_DEVICE);
#else
	dma_unmap_page(dev, addr, SIZE, DMA_FROM_DEVICE); /* BUG: dma-unmap-mismatch */
#endif
	__free_page(page);
}

static int dma_mismatch_direction_start(struct device *dev)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	dma_addr_t addr;

	if (!page)
		return -ENOMEM;
	addr = dma_map_page(dev, page, 0, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		__free_page(page);
		return -EIO;
	}
	dma_mismatch_direction_done(dev, page, addr);
	return 0;
}

ZOO_DMA_MODULE(dma_mismatch_direction_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: unmaps with another direction");
