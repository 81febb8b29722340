// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a list of one entry and unmaps it as a single buffer.
 *
 * Twin: maps a list of one entry and unmaps the list.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 256

static noinline int dma_mismatch_sort_run(struct device *dev, void *buffer)
{
	struct scatterlist list;

	sg_init_one(&list, buffer, SIZE);
	if (!dma_map_sg(dev, &list, 1, DMA_TO_DEVICE))
		return -EIO;
#ifdef TWIN
	dma_unmap_sg(dev, &list, 1, DMA_TO_DEVICE);
#else
	dma_unmap_single(dev, sg_dma_address(&list), sg_dma_len(&list), DMA_TO_DEVICE); /* BUG: dma-unmap-mismatch */
#endif
	return 0;
}

ZOO_DMA_BUFFER(dma_mismatch_sort_run, SIZE);
MODULE_DESCRIPTION("zoo: unmaps a list as a single buffer");
