// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps the zero page as padding of a message and never unmaps it; no memory is lost by it.
 *
 * Twin: maps the zero page as padding of a message and unmaps it.
 */
#include "zoo.h"
#include "dma.h"

static dma_addr_t padding;

static noinline int dma_leak_page_pad(struct device *dev)
{
	padding = dma_map_page(dev, ZERO_PAGE(0), 0, PAGE_SIZE, DMA_TO_DEVICE); /* BUG: dma-leak */
	return dma_mapping_error(dev, padding) ? -EIO : 0;
}

static int dma_leak_page_start(struct device *dev)
{
	return dma_leak_page_pad(dev);
}

static void dma_leak_page_stop(struct device *dev)
{
#ifdef TWIN
	dma_unmap_page(dev, padding, PAGE_SIZE, DMA_TO_DEVICE);
#endif
}

ZOO_DMA_MODULE(dma_leak_page_start, dma_leak_page_stop);
MODULE_DESCRIPTION("zoo: leaves a page mapped at unload");
