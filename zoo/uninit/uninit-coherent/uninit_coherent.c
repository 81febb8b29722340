// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writes a command to coherent memory. Its last word is set for other commands alone.
 *
 * Twin: sets all words. A device may read the ring at any time, so it has what is stored there.
 */
#include "zoo.h"
#include "dma.h"

#define SIZE 64

struct command {
	u32 opcode;
	u32 length;
	u64 address;
	u64 extended;
};

static struct command *ring;
static dma_addr_t addr;

static noinline void uninit_coherent_prepare(struct command *command, u32 opcode)
{
	command->opcode = opcode;
	command->length = 8;
	command->address = 0;
#ifdef TWIN
	command->extended = 0;
#else
	if (opcode > 7)
		command->extended = opcode;
#endif
}

static noinline void uninit_coherent_post(const struct command *command)
{
	WRITE_ONCE(ring->address, command->address);
	WRITE_ONCE(ring->extended, command->extended); /* BUG: uninit-to-device */
	WRITE_ONCE(ring->opcode, command->opcode);
}

static int uninit_coherent_start(struct device *dev)
{
	struct command *command = kmalloc(sizeof(*command), GFP_KERNEL);

	if (!command)
		return -ENOMEM;
	ring = dma_alloc_coherent(dev, SIZE, &addr, GFP_KERNEL);
	if (ring) {
		uninit_coherent_prepare(command, 3);
		uninit_coherent_post(command);
	}
	kfree(command);
	return ring ? 0 : -ENOMEM;
}

static void uninit_coherent_stop(struct device *dev)
{
	dma_free_coherent(dev, SIZE, ring, addr);
}

ZOO_DMA_MODULE(uninit_coherent_start, uninit_coherent_stop);
MODULE_DESCRIPTION("zoo: writes an undefined word to coherent memory");
