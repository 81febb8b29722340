// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fills the header of a buffer and maps all of the buffer for the device to read.
 *
 * Twin: maps a buffer that nobody filled for the device to write, and decides on what it wrote.
 */
#include "zoo.h"
#include "edu.h"

#define SIZE 64

static noinline void uninit_dma_transfer(struct device *dev, void __iomem *regs, u32 *buffer)
{
	dma_addr_t addr;

	buffer[0] = 0x11;
	buffer[1] = 0x22;
#ifdef TWIN
	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
#else
	addr = dma_map_single(dev, buffer, SIZE, DMA_TO_DEVICE); /* BUG: uninit-to-device */
#endif
	if (dma_mapping_error(dev, addr))
		return;
#ifdef TWIN
	edu_transfer(regs, EDU_DMA_BUFFER, addr, SIZE, EDU_DMA_TO_RAM);
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
	if (READ_ONCE(buffer[8]))
		zoo_sink++;
#else
	edu_transfer(regs, addr, EDU_DMA_BUFFER, SIZE, 0);
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
#endif
}

EDU_BUFFER(uninit_dma_transfer, SIZE);
MODULE_DESCRIPTION("zoo: hands a device a buffer of which only the beginning was filled");
