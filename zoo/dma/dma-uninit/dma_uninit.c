// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a buffer for the device to read, and has it read, though nobody filled it.
 *
 * Twin: fills a buffer, maps it for the device to read and has it read.
 */
#include "zoo.h"
#include "edu.h"

#define SIZE 64

static noinline void dma_uninit_transfer(struct device *dev, void __iomem *regs, u32 *buffer)
{
	dma_addr_t addr;

#ifdef TWIN
	for (unsigned int i = 0; i < SIZE / 4; i++)
		WRITE_ONCE(buffer[i], i);
#endif
	addr = dma_map_single(dev, buffer, SIZE, DMA_TO_DEVICE); /* BUG: dma-uninit */
	if (dma_mapping_error(dev, addr))
		return;
	edu_transfer(regs, addr, EDU_DMA_BUFFER, SIZE, 0);
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
}

EDU_BUFFER(dma_uninit_transfer, SIZE);
MODULE_DESCRIPTION("zoo: hands a device a buffer that nobody filled");
