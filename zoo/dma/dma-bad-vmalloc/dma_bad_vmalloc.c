// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a table of vmalloc as if its pages lay side by side, around the check of dma_map_single.
 *
 * Twin: maps each page of a vmalloc table by itself.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE (2 * PAGE_SIZE)

static noinline int dma_bad_vmalloc_send(struct device *dev, void *table)
{
	dma_addr_t addr;
#ifdef TWIN
	unsigned long i;
#endif

#ifdef TWIN
	for (i = 0; i < SIZE; i += PAGE_SIZE) {
		addr = dma_map_page(dev, vmalloc_to_page(table + i), 0, PAGE_SIZE, DMA_TO_DEVICE);
		if (dma_mapping_error(dev, addr))
			return -EIO;
		dma_unmap_page(dev, addr, PAGE_SIZE, DMA_TO_DEVICE);
	}
#else
	addr = dma_map_page(dev, virt_to_page(table), 0, SIZE, DMA_TO_DEVICE); /* BUG: dma-bad-buffer */
	if (dma_mapping_error(dev, addr))
		return -EIO;
	dma_unmap_page(dev, addr, SIZE, DMA_TO_DEVICE);
#endif
	return 0;
}

static int dma_bad_vmalloc_start(struct device *dev)
{
	void *table = vzalloc(SIZE);
	int err;

	if (!table)
		return -ENOMEM;
	err = dma_bad_vmalloc_send(dev, table);
	vfree(table);
	return err;
}

ZOO_DMA_MODULE(dma_bad_vmalloc_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: maps memory of vmalloc by its address");
