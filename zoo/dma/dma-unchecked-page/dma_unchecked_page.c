// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps two pieces of a page, checks the first and uses both.
 *
 * Twin: maps two pieces of a page and checks both before it uses them.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 1024

struct request {
	dma_addr_t head;
	dma_addr_t tail;
};

static noinline int dma_unchecked_page_run(struct device *dev, struct page *page, struct request *r)
{
	r->head = dma_map_page(dev, page, 0, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, r->head))
		return -EIO;
	r->tail = dma_map_page(dev, page, SIZE, SIZE, DMA_TO_DEVICE); /* BUG: dma-unchecked */
#ifdef TWIN
	if (dma_mapping_error(dev, r->tail)) {
		dma_unmap_page(dev, r->head, SIZE, DMA_TO_DEVICE);
		return -EIO;
	}
#endif
	zoo_sink = upper_32_bits(r->tail);
	dma_unmap_page(dev, r->tail, SIZE, DMA_TO_DEVICE);
	dma_unmap_page(dev, r->head, SIZE, DMA_TO_DEVICE);
	return 0;
}

static int dma_unchecked_page_start(struct device *dev)
{
	struct page *page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	struct request r;
	int err;

	if (!page)
		return -ENOMEM;
	err = dma_unchecked_page_run(dev, page, &r);
	__free_page(page);
	return err;
}

ZOO_DMA_MODULE(dma_unchecked_page_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: uses the second of two bus addresses without a check");
