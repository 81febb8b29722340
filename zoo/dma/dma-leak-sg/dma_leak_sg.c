// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The error path after the mapping of a list frees the list and does not unmap it.
 *
 * Twin: the error path after the mapping of a list unmaps it and then frees it.
 */
#include "zoo.h"
#include "dma.h"

static noinline int dma_leak_sg_submit(struct device *dev, struct scatterlist *list, unsigned int count)
{
	int mapped;

	mapped = dma_map_sg(dev, list, count, DMA_TO_DEVICE); /* BUG: dma-leak */
	if (!mapped)
		return -EIO;
	/* The device takes no list of a single segment. */
	if (mapped < zoo_hide(2)) {
#ifdef TWIN
		dma_unmap_sg(dev, list, count, DMA_TO_DEVICE);
#endif
		return -EINVAL;
	}
	dma_unmap_sg(dev, list, count, DMA_TO_DEVICE);
	return 0;
}

static int dma_leak_sg_start(struct device *dev)
{
	struct scatterlist *list = kmalloc(sizeof(*list), GFP_KERNEL);

	if (!list)
		return -ENOMEM;
	sg_init_table(list, 1);
	sg_set_page(list, ZERO_PAGE(0), PAGE_SIZE, 0);
	/* The module works without. */
	zoo_sink = dma_leak_sg_submit(dev, list, 1);
	kfree(list);
	return 0;
}

ZOO_DMA_MODULE(dma_leak_sg_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: leaves a list mapped on an error path");
