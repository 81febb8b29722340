// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fills the header of a buffer and maps all of the buffer for the device to read.
 *
 * Twin: maps a buffer that nobody filled for the device to write, and decides on what it wrote.
 */
#include "zoo.h"
#include "edu.h"

#define SIZE 64

static noinline void uninit_dma_transfer(struct device *dev, void __iomem *regs, u32 *buffer)
{
	unsigned int i;
	dma_addr_t addr;

	buffer[0] = 0x11;
	buffer[1] = 0x22;
#ifdef TWIN
	addr = dma_map_single(dev, buffer, SIZE, DMA_FROM_DEVICE);
#else
	addr = dma_map_single(dev, buffer, SIZE, DMA_TO_DEVICE); /* BUG: uninit-to-device */
#endif
	if (dma_mapping_error(dev, addr))
		return;
#ifdef TWIN
	writel(EDU_DMA_BUFFER, regs + EDU_DMA_SRC);
	writel(lower_32_bits(addr), regs + EDU_DMA_DST);
#else
	writel(lower_32_bits(addr), regs + EDU_DMA_SRC);
	writel(EDU_DMA_BUFFER, regs + EDU_DMA_DST);
#endif
	writel(SIZE, regs + EDU_DMA_COUNT);
#ifdef TWIN
	writel(EDU_DMA_START | EDU_DMA_TO_RAM, regs + EDU_DMA_CMD);
#else
	writel(EDU_DMA_START, regs + EDU_DMA_CMD);
#endif
	for (i = 0; i < 100 && (readl(regs + EDU_DMA_CMD) & EDU_DMA_START); i++)
		msleep(10);
#ifdef TWIN
	dma_unmap_single(dev, addr, SIZE, DMA_FROM_DEVICE);
	if (READ_ONCE(buffer[8]))
		zoo_sink++;
#else
	dma_unmap_single(dev, addr, SIZE, DMA_TO_DEVICE);
#endif
}

static int uninit_dma_probe(struct pci_dev *pdev, const struct pci_device_id *id)
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
	uninit_dma_transfer(&pdev->dev, regs, buffer);
	kfree(buffer);
	return 0;
}

static void uninit_dma_remove(struct pci_dev *pdev)
{
	pci_iounmap(pdev, pci_get_drvdata(pdev));
	edu_close(pdev);
}

EDU_DRIVER(uninit_dma_probe, uninit_dma_remove);
MODULE_DESCRIPTION("zoo: hands a device a buffer of which only the beginning was filled");
MODULE_LICENSE("GPL");
