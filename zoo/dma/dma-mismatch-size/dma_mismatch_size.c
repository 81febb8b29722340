// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps the whole buffer and unmaps only what came.
 *
 * Twin: maps the whole buffer, takes back what came, and unmaps the whole buffer.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 512

static noinline void dma_mismatch_size_done(struct device *dev, dma_addr_t addr, unsigned int received)
{
#ifdef TWIN
	dma_sync_single_for_cpu(dev, addr, received, DMA_FROM_DEVICE);
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
#else
	dma_unmap_single(dev, addr, received, DMA_FROM_DEVICE); /* BUG: dma-unmap-mismatch */
#endif
}

static noinline int dma_mismatch_size_run(struct device *dev, void *buffer)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
	dma_mismatch_size_done(dev, addr, zoo_hide(60));
	return 0;
}

ZOO_DMA_BUFFER(dma_mismatch_size_run, SIZE);
MODULE_DESCRIPTION("zoo: unmaps less than it mapped");
