// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a table of the module's data, which the kernel does not refuse.
 *
 * Twin: maps a copy of a table of the module's data.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 128

static u8 firmware[SIZE] __aligned(64) = { 1, 2, 3, 4 };

static noinline int dma_bad_module_send(struct device *dev, void *image)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, image, SIZE, DMA_TO_DEVICE); /* BUG: dma-bad-buffer */
	if (dma_mapping_error(dev, addr))
		return -EIO;
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
	return 0;
}

static noinline int dma_bad_module_run(struct device *dev, void *buffer)
{
	memcpy(buffer, firmware, SIZE);
#ifdef TWIN
	return dma_bad_module_send(dev, buffer);
#else
	return dma_bad_module_send(dev, zoo_hide((void *)firmware));
#endif
}

ZOO_DMA_BUFFER(dma_bad_module_run, SIZE);
MODULE_DESCRIPTION("zoo: maps data of the module");
