// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the status that the device writes while the buffer belongs to the device.
 *
 * Twin: takes the buffer back for the CPU and reads the status that the device writes.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 128

static noinline u32 dma_direction_status(const u32 *buffer)
{
	return READ_ONCE(buffer[2]); /* BUG: dma-direction */
}

static noinline int dma_direction_run(struct device *dev, u32 *buffer)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
#ifdef TWIN
	dma_sync_single_for_cpu(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
	zoo_sink = dma_direction_status(buffer);
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_direction_run, SIZE);
MODULE_DESCRIPTION("zoo: reads a buffer that the device writes before it is synced");
