// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the last status of a coherent ring that was freed.
 *
 * Twin: reads the last status of a coherent ring and then frees it.
 */
#include "zoo.h"
#include "dma.h"

/* Of an order that the rest of the kernel rarely asks for, so that nobody takes the freed memory over. */
#define SIZE (8 * PAGE_SIZE)

static u32 *ring;
static dma_addr_t addr;

static noinline u32 dma_uaf_coherent_last(const u32 *status)
{
	return READ_ONCE(status[SIZE / 8]); /* BUG: dma-use-after-free */
}

static int dma_uaf_coherent_start(struct device *dev)
{
	ring = dma_alloc_coherent(dev, SIZE, &addr, GFP_KERNEL);
	return ring ? 0 : -ENOMEM;
}

static void dma_uaf_coherent_stop(struct device *dev)
{
#ifdef TWIN
	zoo_sink = dma_uaf_coherent_last(ring);
#endif
	dma_free_coherent(dev, SIZE, ring, addr);
#ifndef TWIN
	zoo_sink = dma_uaf_coherent_last(ring);
#endif
}

ZOO_DMA_MODULE(dma_uaf_coherent_start, dma_uaf_coherent_stop);
MODULE_DESCRIPTION("zoo: reads coherent memory after it was freed");
