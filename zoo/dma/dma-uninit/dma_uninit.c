// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps a buffer for the device to read, and has it read, though nobody filled it.
 *
 * Twin: fills a buffer, maps it for the device to read and has it read.
 */
#include "zoo.h"
#include "edu.h"

#define SIZE 64

static noinline void dma_uninit_transfer(struct device *dev, void __iomem *regs, u32 *buffer)
{
	unsigned int i;
	dma_addr_t addr;

#ifdef TWIN
	for (i = 0; i < SIZE / 4; i++)
		WRITE_ONCE(buffer[i], i);
#endif
	addr = dma_map_single(dev, buffer, SIZE, DMA_TO_DEVICE); /* BUG: dma-uninit */
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

static int dma_uninit_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	void __iomem *regs;
	u32 *buffer;
	int err = edu_open(pdev);

	if (err)
		return err;
	regs = pci_iomap(pdev, 0, 0x100);
	/* Within the device's 28 address lines, so that no bounce buffer comes between. */
	buffer = kmalloc(SIZE, GFP_KERNEL | GFP_DMA);
	if (!regs || !buffer) {
		if (regs)
			pci_iounmap(pdev, regs);
		kfree(buffer);
		edu_close(pdev);
		return -ENOMEM;
	}
	pci_set_drvdata(pdev, regs);
	dma_uninit_transfer(&pdev->dev, regs, buffer);
	kfree(buffer);
	return 0;
}

static void dma_uninit_remove(struct pci_dev *pdev)
{
	pci_iounmap(pdev, pci_get_drvdata(pdev));
	edu_close(pdev);
}

EDU_DRIVER(dma_uninit_probe, dma_uninit_remove);
MODULE_DESCRIPTION("zoo: hands a device a buffer that nobody filled");
MODULE_LICENSE("GPL");
