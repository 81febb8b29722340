// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Cancels a request that is over, and unmaps its list a second time.
 *
 * Twin: cancels a request that is not over, and unmaps its list.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

static noinline void dma_repeated_unmap_sg_cancel(struct device *dev, struct scatterlist *list)
{
	dma_unmap_sg(dev, list, 2, DMA_FROM_DEVICE); /* BUG: dma-repeated-unmap */
}

static noinline int dma_repeated_unmap_sg_run(struct device *dev, u8 *memory)
{
	struct scatterlist list[2];

	sg_init_table(list, ARRAY_SIZE(list));
	sg_set_buf(&list[0], memory, SIZE);
	sg_set_buf(&list[1], memory + 2 * SIZE, SIZE);
	if (!dma_map_sg(dev, list, 2, DMA_FROM_DEVICE))
		return -EIO;
#ifndef TWIN
	dma_unmap_sg(dev, list, 2, DMA_FROM_DEVICE);
#endif
	dma_repeated_unmap_sg_cancel(dev, list);
	return 0;
}

ZOO_DMA_BUFFER(dma_repeated_unmap_sg_run, 4 * SIZE);
MODULE_DESCRIPTION("zoo: unmaps a list twice");
