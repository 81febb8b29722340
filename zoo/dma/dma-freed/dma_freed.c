// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a buffer and then unmaps it.
 *
 * Twin: unmaps a buffer and then frees it.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 256

static noinline void dma_freed_release(struct device *dev, void *buffer, dma_addr_t addr)
{
#ifdef TWIN
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
	kfree(buffer); /* BUG: dma-freed-while-mapped */
#ifndef TWIN
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
#endif
}

static int dma_freed_start(struct device *dev)
{
	void *buffer = kzalloc(SIZE, GFP_KERNEL);
	dma_addr_t addr;

	if (!buffer)
		return -ENOMEM;
	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		kfree(buffer);
		return -EIO;
	}
	dma_freed_release(dev, buffer, addr);
	return 0;
}

ZOO_DMA_MODULE(dma_freed_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: frees a mapped buffer");
