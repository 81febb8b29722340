// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees the ring at unload and forgets the block of statistics; both are coherent memory.
 *
 * Twin: frees the ring and the block of statistics at unload; both are coherent memory.
 */
#include "zoo.h"
#include "dma.h"

#define RING 1024
#define STATS 256

static void *ring, *stats;
static dma_addr_t ring_addr, stats_addr;

static noinline void *dma_leak_coherent_allocate(struct device *dev)
{
	return dma_alloc_coherent(dev, STATS, &stats_addr, GFP_KERNEL); /* BUG: dma-leak */
}

static int dma_leak_coherent_start(struct device *dev)
{
	ring = dma_alloc_coherent(dev, RING, &ring_addr, GFP_KERNEL);
	if (!ring)
		return -ENOMEM;
	stats = dma_leak_coherent_allocate(dev);
	if (!stats) {
		dma_free_coherent(dev, RING, ring, ring_addr);
		return -ENOMEM;
	}
	return 0;
}

static void dma_leak_coherent_stop(struct device *dev)
{
#ifdef TWIN
	dma_free_coherent(dev, STATS, stats, stats_addr);
#endif
	dma_free_coherent(dev, RING, ring, ring_addr);
}

ZOO_DMA_MODULE(dma_leak_coherent_start, dma_leak_coherent_stop);
MODULE_DESCRIPTION("zoo: leaves coherent memory allocated at unload");
