// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Gives a packet back to the kernel, which frees its mapped data, and then unmaps it.
 *
 * Twin: unmaps a packet and then gives it back to the kernel.
 */
#include "zoo.h"
#include "dma.h"
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#define SIZE 192

static noinline void dma_freed_skb_release(struct device *dev, struct sk_buff *skb, dma_addr_t addr)
{
#ifdef TWIN
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
#endif
	dev_kfree_skb_any(skb); /* BUG: dma-freed-while-mapped */
#ifndef TWIN
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
#endif
}

static int dma_freed_skb_start(struct device *dev)
{
	struct sk_buff *skb = alloc_skb(SIZE, GFP_KERNEL);
	dma_addr_t addr;

	if (!skb)
		return -ENOMEM;
	skb_put_zero(skb, SIZE);
	addr = dma_map_single(dev, skb->data, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr)) {
		dev_kfree_skb_any(skb);
		return -EIO;
	}
	dma_freed_skb_release(dev, skb, addr);
	return 0;
}

ZOO_DMA_MODULE(dma_freed_skb_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: frees a packet whose data is mapped");
