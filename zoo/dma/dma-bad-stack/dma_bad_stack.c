// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a command on the stack; the kernel refuses it, and the driver takes the error for a want of
 * memory.
 *
 * Twin: maps a command on the heap.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

static noinline int dma_bad_stack_send(struct device *dev, u8 *command)
{
	dma_addr_t addr;

	memset(command, 0x11, SIZE);
	addr = dma_map_single(dev, command, SIZE, DMA_TO_DEVICE); /* BUG: dma-bad-buffer */
	if (dma_mapping_error(dev, addr))
		return -ENOMEM;
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
	return 0;
}

#ifdef TWIN
ZOO_DMA_BUFFER(dma_bad_stack_send, SIZE);
#else
static noinline int dma_bad_stack_run(struct device *dev, void *unused)
{
	u8 command[SIZE] __aligned(64);

	/* The module works without. */
	zoo_sink = dma_bad_stack_send(dev, command);
	return 0;
}

ZOO_DMA_BUFFER(dma_bad_stack_run, SIZE);
#endif
MODULE_DESCRIPTION("zoo: maps memory of the stack");
