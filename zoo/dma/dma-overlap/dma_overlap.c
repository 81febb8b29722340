// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Two mappings, one of which the device writes, have a cache line in common.
 *
 * Twin: two mappings, one of which the device writes, are neighbors.
 */
#include "zoo.h"
#include "dma.h"

#define LINE 64

#ifdef TWIN
/* Lines 0 and 1 are the command; lines 2 and 3 are the answer. */
#else
/* Lines 0 and 1 are the command; lines 1 and 2 are the answer. */
#endif
static noinline int dma_overlap_run(struct device *dev, u8 *memory)
{
#ifdef TWIN
	u8 *answer = memory + 2 * LINE;
#else
	u8 *answer = memory + LINE;
#endif
	struct page *page = virt_to_page(answer);
	dma_addr_t to, from;

	to = dma_map_single(dev, memory, 2 * LINE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, to))
		return -EIO;
	from = dma_map_page(dev, page, offset_in_page(answer), 2 * LINE, DMA_FROM_DEVICE); /* BUG: dma-overlap */
	if (!dma_mapping_error(dev, from))
		dma_unmap_page(dev, from, 2 * LINE, DMA_FROM_DEVICE);
	dma_unmap_single(dev, to, 2 * LINE, DMA_TO_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_overlap_run, 4 * LINE);
MODULE_DESCRIPTION("zoo: maps a cache line twice, once for writing");
