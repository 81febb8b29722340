// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A retry maps the list once more, which the first try left mapped.
 *
 * Twin: a retry maps the list once more after the first try has unmapped it.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 128

static noinline int dma_repeated_map_sg_retry(struct device *dev, struct scatterlist *list)
{
	return dma_map_sg(dev, list, 2, DMA_BIDIRECTIONAL); /* BUG: dma-repeated-map */
}

static noinline int dma_repeated_map_sg_run(struct device *dev, u8 *memory)
{
	struct scatterlist list[2];

	sg_init_table(list, ARRAY_SIZE(list));
	sg_set_buf(&list[0], memory, SIZE);
	sg_set_buf(&list[1], memory + 2 * SIZE, SIZE);
	if (!dma_map_sg(dev, list, 2, DMA_BIDIRECTIONAL))
		return -EIO;
#ifdef TWIN
	dma_unmap_sg(dev, list, 2, DMA_BIDIRECTIONAL);
#endif
	if (dma_repeated_map_sg_retry(dev, list))
		dma_unmap_sg(dev, list, 2, DMA_BIDIRECTIONAL);
#ifndef TWIN
	dma_unmap_sg(dev, list, 2, DMA_BIDIRECTIONAL);
#endif
	return 0;
}

ZOO_DMA_BUFFER(dma_repeated_map_sg_run, 4 * SIZE);
MODULE_DESCRIPTION("zoo: maps a list twice");
