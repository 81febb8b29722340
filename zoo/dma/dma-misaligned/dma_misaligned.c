// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The buffer that the device writes shares its first cache line with a field that the CPU writes.
 *
 * Twin: the buffer that the device writes has its cache lines for itself.
 */
#include "zoo.h"
#include "dma.h"

struct channel {
	u32 state;
	u32 errors;
#ifdef TWIN
	u8 buffer[128] __aligned(64);
#else
	u8 buffer[120];
#endif
};

static noinline int dma_misaligned_receive(struct device *dev, struct channel *c)
{
	dma_addr_t addr;

	addr = dma_map_single(dev, c->buffer, sizeof(c->buffer), DMA_FROM_DEVICE); /* BUG: dma-misaligned */
	if (dma_mapping_error(dev, addr))
		return -EIO;
	WRITE_ONCE(c->state, 1);
	dma_unmap_single(dev, addr, sizeof(c->buffer), DMA_FROM_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_misaligned_receive, 256);
MODULE_DESCRIPTION("zoo: maps a buffer that begins inside a cache line");
