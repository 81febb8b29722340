// SPDX-License-Identifier: GPL-2.0-or-later
/* Maps a copy of a table of the module's data. */
#include "../zoo.h"
#include "../dma.h"

#define SIZE 128

static u8 firmware[SIZE] __aligned(64) = { 1, 2, 3, 4 };

static noinline int dma_bad_module_send(struct device *dev, void *image)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, image, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
	return 0;
}

static noinline int dma_bad_module_run(struct device *dev, void *buffer)
{
	memcpy(buffer, firmware, SIZE);
	return dma_bad_module_send(dev, buffer);
}

ZOO_DMA_BUFFER(dma_bad_module_run, SIZE);
MODULE_DESCRIPTION("zoo: maps a copy of the module's data, correct");
MODULE_LICENSE("GPL");
