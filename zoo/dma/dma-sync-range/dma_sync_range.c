// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Syncs a header that is longer than what is mapped.
 *
 * Twin: syncs a header that is as long as what is mapped.
 */
#include "zoo.h"
#include "dma.h"

#define MAPPED 64
#define HEADER 96

static noinline void dma_sync_range_header(struct device *dev, dma_addr_t addr, size_t size)
{
#ifdef TWIN
	dma_sync_single_for_cpu(dev, addr, min_t(size_t, size, MAPPED), DMA_FROM_DEVICE);
#else
	dma_sync_single_for_cpu(dev, addr, size, DMA_FROM_DEVICE); /* BUG: dma-sync-range */
#endif
}

static noinline int dma_sync_range_run(struct device *dev, void *buffer)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, buffer, MAPPED, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
	dma_sync_range_header(dev, addr, zoo_hide(HEADER));
	dma_unmap_single(dev, addr, MAPPED, DMA_FROM_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_sync_range_run, 2 * MAPPED);
MODULE_DESCRIPTION("zoo: syncs more than is mapped");
