// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a buffer for one device and unmaps it for another.
 *
 * Twin: maps and unmaps a buffer for the second of two devices.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

static noinline int dma_mismatch_device_run(struct device *dev, struct device *other, void *buffer)
{
	dma_addr_t addr;

	addr = dma_map_single(other, buffer, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(other, addr))
		return -EIO;
#ifdef TWIN
	dma_unmap_single(other, addr, SIZE, DMA_TO_DEVICE);
#else
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE); /* BUG: dma-unmap-mismatch */
#endif
	return 0;
}

static int dma_mismatch_device_start(struct device *dev)
{
	struct platform_device *other = zoo_dma_add(1);
	void *buffer;
	int err = -ENOMEM;

	if (IS_ERR(other))
		return PTR_ERR(other);
	buffer = kzalloc(SIZE, GFP_KERNEL);
	if (buffer)
		err = dma_mismatch_device_run(dev, &other->dev, buffer);
	kfree(buffer);
	platform_device_unregister(other);
	return err;
}

ZOO_DMA_MODULE(dma_mismatch_device_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: unmaps for another device");
