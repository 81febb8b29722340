// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A poll syncs a buffer that was unmapped before.
 *
 * Twin: a poll syncs a buffer, which is unmapped afterwards.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 128

static noinline void dma_sync_unmapped_poll(struct device *dev, dma_addr_t addr)
{
	dma_sync_single_for_cpu(dev, addr, SIZE, DMA_FROM_DEVICE); /* BUG: dma-sync-unmapped */
}

static noinline int dma_sync_unmapped_run(struct device *dev, void *buffer)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
#ifdef TWIN
	dma_sync_unmapped_poll(dev, addr);
#endif
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
#ifndef TWIN
	dma_sync_unmapped_poll(dev, addr);
#endif
	return 0;
}

ZOO_DMA_BUFFER(dma_sync_unmapped_run, SIZE);
MODULE_DESCRIPTION("zoo: syncs a buffer that is not mapped");
