// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a list of four entries and unmaps three, since it forgets the last buffer.
 *
 * Twin: maps a list of four entries and unmaps the four, whatever number of segments they became.
 */
#include "zoo.h"
#include "dma.h"

#define COUNT 4
#define SIZE 64

static noinline void dma_mismatch_count_done(struct device *dev, struct scatterlist *list, int count)
{
#ifdef TWIN
	dma_unmap_sg(dev, list, count, DMA_TO_DEVICE);
#else
	dma_unmap_sg(dev, list, count - 1, DMA_TO_DEVICE); /* BUG: dma-unmap-mismatch */
#endif
}

static noinline int dma_mismatch_count_run(struct device *dev, u8 *memory)
{
	struct scatterlist list[COUNT];
	unsigned int i;

	sg_init_table(list, COUNT);
	for (i = 0; i < COUNT; i++)
		sg_set_buf(&list[i], memory + i * SIZE, SIZE);
	if (!dma_map_sg(dev, list, COUNT, DMA_TO_DEVICE))
		return -EIO;
	dma_mismatch_count_done(dev, list, COUNT);
	return 0;
}

ZOO_DMA_BUFFER(dma_mismatch_count_run, COUNT * SIZE);
MODULE_DESCRIPTION("zoo: unmaps fewer entries of a list than it mapped");
