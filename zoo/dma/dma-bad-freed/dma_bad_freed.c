// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a buffer for the device to write that was freed before.
 *
 * Twin: maps a buffer for the device to write that is freed afterwards.
 */
#include "zoo.h"
#include "dma.h"

/* Of a size that the rest of the kernel rarely asks for. */
#define SIZE 6144

static noinline int dma_bad_freed_send(struct device *dev, void *buffer)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE); /* BUG: dma-bad-buffer */
	if (dma_mapping_error(dev, addr))
		return -EIO;
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
	return 0;
}

static int dma_bad_freed_start(struct device *dev)
{
	void *buffer = kzalloc(SIZE, GFP_KERNEL);
	int err;

	if (!buffer)
		return -ENOMEM;
#ifdef TWIN
	err = dma_bad_freed_send(dev, zoo_hide(buffer));
#endif
	kfree(buffer);
#ifndef TWIN
	err = dma_bad_freed_send(dev, zoo_hide(buffer));
#endif
	return err;
}

ZOO_DMA_MODULE(dma_bad_freed_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: maps freed memory");
