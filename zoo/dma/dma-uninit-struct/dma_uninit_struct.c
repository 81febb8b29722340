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
	unsigned int i;
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
	writel(lower_32_bits(addr), regs + EDU_DMA_SRC);
	writel(EDU_DMA_BUFFER, regs + EDU_DMA_DST);
	writel(SIZE, regs + EDU_DMA_COUNT);
	writel(EDU_DMA_START, regs + EDU_DMA_CMD);
	for (i = 0; i < 100 && (readl(regs + EDU_DMA_CMD) & EDU_DMA_START); i++)
		msleep(10);
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
}

static int dma_uninit_struct_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	void __iomem *regs;
	struct command *command;
	int err = edu_open(pdev);

	if (err)
		return err;
	regs = pci_iomap(pdev, 0, 0x100);
	/* Within the device's 28 address lines, so that no bounce buffer comes between. */
	command = kmalloc(sizeof(*command), GFP_KERNEL | GFP_DMA);
	if (!regs || !command) {
		if (regs)
			pci_iounmap(pdev, regs);
		kfree(command);
		edu_close(pdev);
		return -ENOMEM;
	}
	pci_set_drvdata(pdev, regs);
	dma_uninit_struct_transfer(&pdev->dev, regs, command);
	kfree(command);
	return 0;
}

static void dma_uninit_struct_remove(struct pci_dev *pdev)
{
	pci_iounmap(pdev, pci_get_drvdata(pdev));
	edu_close(pdev);
}

EDU_DRIVER(dma_uninit_struct_probe, dma_uninit_struct_remove);
MODULE_DESCRIPTION("zoo: hands a device the padding of a command");
MODULE_LICENSE("GPL");
