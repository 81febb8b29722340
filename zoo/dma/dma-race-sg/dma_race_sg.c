// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Clears the third buffer of a list that is mapped for the device to read.
 *
 * Twin: clears the third buffer of a list when it is not mapped any more.
 */
#include "zoo.h"
#include "dma.h"

#define COUNT 3
#define SIZE 128

static u8 *buffers[COUNT];

static noinline void dma_race_sg_clear(u8 *buffer, unsigned int size)
{
	unsigned int i;

	for (i = 0; i < size; i++)
		WRITE_ONCE(buffer[i], 0); /* BUG: dma-race */
}

static noinline int dma_race_sg_run(struct device *dev)
{
	struct scatterlist list[COUNT];
	unsigned int i;

	sg_init_table(list, COUNT);
	for (i = 0; i < COUNT; i++)
		sg_set_buf(&list[i], buffers[i], SIZE);
	if (!dma_map_sg(dev, list, COUNT, DMA_TO_DEVICE))
		return -EIO;
#ifdef TWIN
	dma_unmap_sg(dev, list, COUNT, DMA_TO_DEVICE);
#endif
	dma_race_sg_clear(READ_ONCE(buffers[2]), zoo_hide(SIZE));
#ifndef TWIN
	dma_unmap_sg(dev, list, COUNT, DMA_TO_DEVICE);
#endif
	return 0;
}

static int dma_race_sg_start(struct device *dev)
{
	int err = -ENOMEM;
	unsigned int i;

	for (i = 0; i < COUNT; i++) {
		buffers[i] = kzalloc(SIZE, GFP_KERNEL);
		if (!buffers[i])
			goto free;
	}
	err = dma_race_sg_run(dev);
free:
	for (i = 0; i < COUNT; i++)
		kfree(buffers[i]);
	return err;
}

ZOO_DMA_MODULE(dma_race_sg_start, zoo_dma_nothing);
MODULE_DESCRIPTION("zoo: clears a buffer of a mapped list");
