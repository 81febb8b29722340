// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Puts the bus address into a descriptor without asking whether the mapping succeeded.
 *
 * Twin: asks whether the mapping succeeded before the bus address goes into a descriptor.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 128

struct descriptor {
	__le64 addr;
	__le32 len;
	__le32 flags;
};

static noinline int dma_unchecked_post(struct device *dev, struct descriptor *d, void *buffer)
{
#ifdef TWIN
	dma_addr_t addr;

	addr = dma_map_single(dev, buffer, SIZE, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
	d->addr = cpu_to_le64(addr);
#else
	d->addr = cpu_to_le64(dma_map_single(dev, buffer, SIZE, DMA_TO_DEVICE)); /* BUG: dma-unchecked */
#endif
	d->len = cpu_to_le32(SIZE);
	return 0;
}

static noinline int dma_unchecked_run(struct device *dev, void *buffer)
{
	struct descriptor *d = kzalloc(sizeof(*d), GFP_KERNEL);
	int err;

	if (!d)
		return -ENOMEM;
	err = dma_unchecked_post(dev, d, buffer);
	if (!err)
		dma_unmap_single(dev, le64_to_cpu(d->addr), le32_to_cpu(d->len), DMA_TO_DEVICE);
	kfree(d);
	return err;
}

ZOO_DMA_BUFFER(dma_unchecked_run, SIZE);
MODULE_DESCRIPTION("zoo: uses a bus address that was not checked");
