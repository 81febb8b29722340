// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sets the sequence number of a message that the device may be reading already.
 *
 * Twin: sets the sequence number of a message before it maps it for the device to read.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 256

struct message {
	u32 sequence;
	u8 payload[SIZE - 4];
};

static noinline int dma_race_single_send(struct device *dev, struct message *m)
{
	dma_addr_t addr;

	memset(m->payload, 0x5a, sizeof(m->payload));
#ifdef TWIN
	WRITE_ONCE(m->sequence, 7);
#endif
	addr = dma_map_single(dev, m, sizeof(*m), DMA_TO_DEVICE);
	if (dma_mapping_error(dev, addr))
		return -EIO;
#ifndef TWIN
	WRITE_ONCE(m->sequence, 7); /* BUG: dma-race */
#endif
	dma_unmap_single(dev, addr, sizeof(*m), DMA_TO_DEVICE);
	return 0;
}

ZOO_DMA_BUFFER(dma_race_single_send, SIZE);
MODULE_DESCRIPTION("zoo: writes a mapped buffer that the device reads");
