// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A refill maps a receive buffer again that is still mapped.
 *
 * Twin: a refill maps a receive buffer again after it was unmapped.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 256

static noinline dma_addr_t dma_repeated_map_refill(struct device *dev, void *buffer)
{
	return dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE); /* BUG: dma-repeated-map */
}

static noinline int dma_repeated_map_run(struct device *dev, void *buffer)
{
	dma_addr_t first, second;

	first = dma_repeated_map_refill(dev, buffer);
	if (dma_mapping_error(dev, first))
		return -EIO;
#ifdef TWIN
	dma_unmap_single(dev, first, SIZE, DMA_FROM_DEVICE);
#endif
	second = dma_repeated_map_refill(dev, buffer);
	if (dma_mapping_error(dev, second)) {
#ifndef TWIN
		dma_unmap_single(dev, first, SIZE, DMA_FROM_DEVICE);
#endif
		return -EIO;
	}
	dma_unmap_single(dev, second, SIZE, DMA_FROM_DEVICE);
#ifndef TWIN
	dma_unmap_single(dev, first, SIZE, DMA_FROM_DEVICE);
#endif
	return 0;
}

ZOO_DMA_BUFFER(dma_repeated_map_run, SIZE);
MODULE_DESCRIPTION("zoo: maps a buffer twice");
