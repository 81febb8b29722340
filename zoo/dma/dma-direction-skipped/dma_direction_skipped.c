// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads what the device writes before the unmap, for a device whose dma_sync_* newer kernels leave
 * out.
 *
 * Twin: syncs and reads what the device writes, for a device whose dma_sync_* newer kernels leave
 * out.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 256

static noinline u32 dma_direction_skipped_peek(const u32 *buffer)
{
	return READ_ONCE(buffer[7]); /* BUG: dma-direction */
}

static noinline int dma_direction_skipped_run(struct device *dev, u32 *buffer)
{
	dma_addr_t addr;

	/* A coherent device: since 6.10 its dma_sync_* end at a flag of the device, and no function is called. */
	if (dma_set_mask(dev, DMA_BIT_MASK(64)))
		return -EIO;
	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
#ifdef TWIN
	dma_sync_single_for_cpu(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
	zoo_sink = dma_direction_skipped_peek(buffer);
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_direction_skipped_run, SIZE);
MODULE_DESCRIPTION("zoo: reads a buffer that the device writes before it is unmapped");
