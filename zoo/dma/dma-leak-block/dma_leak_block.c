// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Gives two of three blocks back to their pool before it destroys the pool.
 *
 * Twin: gives all blocks back to their pool before it destroys the pool.
 */
#include "zoo.h"
#include "dma.h"

#define BLOCKS 3

static struct dma_pool *pool;
static void *blocks[BLOCKS];
static dma_addr_t addrs[BLOCKS];

static noinline int dma_leak_block_take(void)
{
	unsigned int i;

	for (i = 0; i < BLOCKS; i++) {
		blocks[i] = dma_pool_alloc(pool, GFP_KERNEL, &addrs[i]);
		if (!blocks[i])
			return -ENOMEM;
	}
	return 0;
}

static noinline void dma_leak_block_give(unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (blocks[i])
			dma_pool_free(pool, blocks[i], addrs[i]);
	dma_pool_destroy(pool); /* BUG: dma-leak */
}

static int dma_leak_block_start(struct device *dev)
{
	pool = dma_pool_create("zoo", dev, 128, 64, 0);
	if (!pool)
		return -ENOMEM;
	if (dma_leak_block_take()) {
		dma_leak_block_give(BLOCKS);
		return -ENOMEM;
	}
	return 0;
}

static void dma_leak_block_stop(struct device *dev)
{
#ifdef TWIN
	dma_leak_block_give(BLOCKS);
#else
	dma_leak_block_give(BLOCKS - 1);
#endif
}

ZOO_DMA_MODULE(dma_leak_block_start, dma_leak_block_stop);
MODULE_DESCRIPTION("zoo: destroys a pool of which a block is in use");
