// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Gives the blocks back at unload and never destroys the pool.
 *
 * Twin: gives the blocks back at unload and destroys the pool.
 */
#include "zoo.h"
#include "dma.h"

static struct dma_pool *pool;
static void *block;
static dma_addr_t addr;

static noinline struct dma_pool *dma_leak_pool_create(struct device *dev)
{
	return dma_pool_create("zoo", dev, 64, 64, 0); /* BUG: dma-leak */
}

static int dma_leak_pool_start(struct device *dev)
{
	pool = dma_leak_pool_create(dev);
	if (!pool)
		return -ENOMEM;
	block = dma_pool_alloc(pool, GFP_KERNEL, &addr);
	if (!block) {
		dma_pool_destroy(pool);
		return -ENOMEM;
	}
	return 0;
}

static void dma_leak_pool_stop(struct device *dev)
{
	dma_pool_free(pool, block, addr);
#ifdef TWIN
	dma_pool_destroy(pool);
#endif
}

ZOO_DMA_MODULE(dma_leak_pool_start, dma_leak_pool_stop);
MODULE_DESCRIPTION("zoo: leaves a pool behind at unload");
