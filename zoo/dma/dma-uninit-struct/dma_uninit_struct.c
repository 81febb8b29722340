// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sets every member of a command; the padding between them goes to the device as it was.
 *
 * Twin: clears a command, then sets its members, so that the padding between them is defined.
 */
#include "zoo.h"
#include "edu.h"

struct command {
	u8 opcode;
	/* The compiler leaves three bytes here, and four before the address. */
	u32 length;
	u16 flags;
	u16 tag;
	u64 address;
};

#define SIZE sizeof(struct command)

static noinline void dma_uninit_struct_transfer(struct device *dev, void __iomem *regs, struct command *command)
{
	dma_addr_t addr;

#ifdef TWIN
	memset(command, 0, sizeof(*command));
#endif
	WRITE_ONCE(command->opcode, 3);
	WRITE_ONCE(command->length, 512);
	WRITE_ONCE(command->flags, 1);
	WRITE_ONCE(command->tag, 7);
	WRITE_ONCE(command->address, 0x1000);
	addr = dma_map_single(dev, command, SIZE, DMA_TO_DEVICE); /* BUG: dma-uninit */
	if (dma_mapping_error(dev, addr))
		return;
	edu_transfer(regs, addr, EDU_DMA_BUFFER, SIZE, 0);
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
}

EDU_BUFFER(dma_uninit_struct_transfer, SIZE);
MODULE_DESCRIPTION("zoo: hands a device the padding of a command");
