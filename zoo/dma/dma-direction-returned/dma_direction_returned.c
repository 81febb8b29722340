// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Looks into a list's buffer once more after it has given the list back to the device.
 *
 * Twin: looks into a list's buffer before it gives the list back to the device.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

static noinline u32 dma_direction_returned_length(const u8 *buffer)
{
	return READ_ONCE(buffer[5]); /* BUG: dma-direction */
}

static noinline int dma_direction_returned_run(struct device *dev, u8 *memory)
{
	struct scatterlist list[2];

	sg_init_table(list, ARRAY_SIZE(list));
	sg_set_buf(&list[0], memory, SIZE);
	sg_set_buf(&list[1], memory + 2 * SIZE, SIZE);
	if (!dma_map_sg(dev, list, 2, DMA_FROM_DEVICE))
		return -EIO;
	dma_sync_sg_for_cpu(dev, list, 2, DMA_FROM_DEVICE);
	zoo_sink = READ_ONCE(memory[2 * SIZE]);
#ifdef TWIN
	zoo_sink = dma_direction_returned_length(memory + 2 * SIZE);
#endif
	dma_sync_sg_for_device(dev, list, 2, DMA_FROM_DEVICE);
#ifndef TWIN
	zoo_sink = dma_direction_returned_length(memory + 2 * SIZE);
#endif
	dma_unmap_sg(dev, list, 2, DMA_FROM_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_direction_returned_run, 4 * SIZE);
MODULE_DESCRIPTION("zoo: reads a buffer after giving it back to the device");
