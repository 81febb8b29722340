// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Syncs the last fragment of a mapped page by an offset that counts from the page and not from the
 * mapping.
 *
 * Twin: syncs the last fragment of a mapped page by its offset in the mapping.
 */
#include "zoo.h"
#include "dma.h"

#define OFFSET 256
#define SIZE 2048
#define FRAGMENT 512

static noinline void dma_sync_offset_fragment(struct device *dev, dma_addr_t addr, unsigned long offset)
{
#ifdef TWIN
	dma_sync_single_range_for_cpu(dev, addr, offset - OFFSET, FRAGMENT, DMA_FROM_DEVICE);
#else
	dma_sync_single_range_for_cpu(dev, addr, offset, FRAGMENT, DMA_FROM_DEVICE); /* BUG: dma-sync-range */
#endif
}

static int dma_sync_offset_start(struct device *dev)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	dma_addr_t addr;

	if (!page)
		return -ENOMEM;
	addr = dma_map_page(dev, page, OFFSET, SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		__free_page(page);
		return -EIO;
	}
	dma_sync_offset_fragment(dev, addr, OFFSET + SIZE - FRAGMENT);
	dma_unmap_page(dev, addr, SIZE, DMA_FROM_DEVICE);
	__free_page(page);
	return 0;
}

ZOO_DMA_MODULE(dma_sync_offset_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: syncs a range that ends behind the mapping");
