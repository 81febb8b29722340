// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clears the status word of a receive buffer that the device has already been given.
 *
 * Twin: takes a receive buffer back for the CPU, clears its status word, and gives it to the
 * device again.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 128

static noinline void dma_race_receive_prepare(u32 *buffer)
{
	WRITE_ONCE(buffer[3], 0); /* BUG: dma-race */
}

static noinline int dma_race_receive_run(struct device *dev, u32 *buffer)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
#ifdef TWIN
	dma_sync_single_for_cpu(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
	dma_race_receive_prepare(buffer);
#ifdef TWIN
	dma_sync_single_for_device(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_race_receive_run, SIZE);
MODULE_DESCRIPTION("zoo: writes a mapped buffer that the device writes");
