// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writes the buffer of an entry that stands behind the link of a chained list, while the list is
 * mapped.
 *
 * Twin: takes a chained list back for the CPU, writes the buffer of an entry behind the link, and
 * hands the list over again.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

static noinline void dma_race_chained_stamp(u64 *buffer)
{
	WRITE_ONCE(*buffer, 0x1234); /* BUG: dma-race */
}

/* Entries 0 and 1, the link, entries 2 and 3. */
static noinline int dma_race_chained_run(struct device *dev, u8 *memory)
{
	struct scatterlist first[3], second[2];

	sg_init_table(first, ARRAY_SIZE(first));
	sg_init_table(second, ARRAY_SIZE(second));
	sg_chain(first, ARRAY_SIZE(first), second);
	sg_set_buf(&first[0], memory, SIZE);
	sg_set_buf(&first[1], memory + 2 * SIZE, SIZE);
	sg_set_buf(&second[0], memory + 4 * SIZE, SIZE);
	sg_set_buf(&second[1], memory + 6 * SIZE, SIZE);
	if (!dma_map_sg(dev, first, 4, DMA_BIDIRECTIONAL))
		return -EIO;
#ifdef TWIN
	dma_sync_sg_for_cpu(dev, first, 4, DMA_BIDIRECTIONAL);
#endif
	dma_race_chained_stamp((u64 *)(memory + 6 * SIZE));
#ifdef TWIN
	dma_sync_sg_for_device(dev, first, 4, DMA_BIDIRECTIONAL);
#endif
	dma_unmap_sg(dev, first, 4, DMA_BIDIRECTIONAL);
	return 0;
}

ZOO_DMA_BUFFER(dma_race_chained_run, 8 * SIZE);
MODULE_DESCRIPTION("zoo: writes a buffer of the second part of a mapped chained list");
