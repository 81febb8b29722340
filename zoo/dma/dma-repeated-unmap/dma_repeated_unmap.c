// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The completion of a transfer unmaps its buffer, and the cleanup at unload unmaps it again.
 *
 * Twin: the completion of a transfer unmaps its buffer and forgets its address; the cleanup at
 * unload looks at it.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

static void *buffer;
static dma_addr_t addr;
static unsigned int completed;

static noinline void dma_repeated_unmap_complete(struct device *dev)
{
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
	WRITE_ONCE(completed, 1);
#ifdef TWIN
	addr = DMA_MAPPING_ERROR;
#endif
}

static noinline void dma_repeated_unmap_cleanup(struct device *dev)
{
#ifdef TWIN
	if (addr != DMA_MAPPING_ERROR)
		dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
#else
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE); /* BUG: dma-repeated-unmap */
#endif
}

static int dma_repeated_unmap_start(struct device *dev)
{
	buffer = kzalloc(SIZE, GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	addr = dma_map_single(dev, buffer, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		kfree(buffer);
		return -EIO;
	}
	dma_repeated_unmap_complete(dev);
	return 0;
}

static void dma_repeated_unmap_stop(struct device *dev)
{
	dma_repeated_unmap_cleanup(dev);
	kfree(buffer);
}

ZOO_DMA_MODULE(dma_repeated_unmap_start, dma_repeated_unmap_stop);
MODULE_DESCRIPTION("zoo: unmaps a buffer twice");
