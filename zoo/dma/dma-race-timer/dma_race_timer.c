// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A timer (softirq) counts in a buffer that stays mapped both ways from load to unload.
 *
 * Twin: a timer (softirq) takes a buffer that stays mapped both ways back for the time in which it
 * counts in it.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

static struct device *device;
static u32 *shared;
static dma_addr_t address;
static struct timer_list beat;

static noinline void dma_race_timer_beat(struct timer_list *t)
{
#ifdef TWIN
	dma_sync_single_for_cpu(device, address, SIZE, DMA_BIDIRECTIONAL);
#endif
	WRITE_ONCE(shared[1], 1); /* BUG: dma-race */
#ifdef TWIN
	dma_sync_single_for_device(device, address, SIZE, DMA_BIDIRECTIONAL);
#endif
}

static int dma_race_timer_start(struct device *dev)
{
	shared = kzalloc(SIZE, GFP_KERNEL);
	if (!shared)
		return -ENOMEM;
	address = dma_map_single(dev, shared, SIZE, DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dev, address)) {
		kfree(shared);
		return -EIO;
	}
	device = dev;
	timer_setup(&beat, dma_race_timer_beat, 0);
	mod_timer(&beat, jiffies + msecs_to_jiffies(20));
	msleep(100);
	return 0;
}

static void dma_race_timer_stop(struct device *dev)
{
	timer_delete_sync(&beat);
	dma_unmap_single(dev, address, SIZE, DMA_BIDIRECTIONAL);
	kfree(shared);
}

ZOO_DMA_MODULE(dma_race_timer_start, dma_race_timer_stop);
MODULE_DESCRIPTION("zoo: writes a mapped buffer in a timer");
