// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads a descriptor of a pool after it was given back; its memory is still the pool's.
 *
 * Twin: reads a descriptor of a pool before it is given back.
 */
#include "zoo.h"
#include "dma.h"

static struct dma_pool *pool;

static noinline u32 dma_uaf_pool_owner(const u32 *descriptor)
{
	return READ_ONCE(descriptor[9]); /* BUG: dma-use-after-free */
}

static int dma_uaf_pool_start(struct device *dev)
{
	dma_addr_t addr;
	u32 *d;

	pool = dma_pool_create("zoo", dev, 64, 64, 0);
	if (!pool)
		return -ENOMEM;
	d = dma_pool_zalloc(pool, GFP_KERNEL, &addr);
	if (!d) {
		dma_pool_destroy(pool);
		return -ENOMEM;
	}
#ifdef TWIN
	zoo_sink = dma_uaf_pool_owner(d);
#endif
	dma_pool_free(pool, d, addr);
#ifndef TWIN
	zoo_sink = dma_uaf_pool_owner(d);
#endif
	return 0;
}

static void dma_uaf_pool_stop(struct device *dev)
{
	dma_pool_destroy(pool);
}

ZOO_DMA_MODULE(dma_uaf_pool_start, dma_uaf_pool_stop);
MODULE_DESCRIPTION("zoo: reads a block of a pool after it was given back");
