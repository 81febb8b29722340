/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QEMU's edu device: registers, and what every driver of it does first and last.
 */
#ifndef ZOO_EDU_H
#define ZOO_EDU_H

#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/pci.h>

#define EDU_ID			0x00
#define EDU_LIVE		0x04
#define EDU_FACTORIAL		0x08
#define EDU_STATUS		0x20
#define EDU_IRQ_STATUS		0x24
#define EDU_IRQ_RAISE		0x60
#define EDU_IRQ_ACK		0x64
#define EDU_DMA_SRC		0x80
#define EDU_DMA_DST		0x88
#define EDU_DMA_COUNT		0x90
#define EDU_DMA_CMD		0x98
#define EDU_DMA_START		0x1
#define EDU_DMA_TO_RAM		0x2
#define EDU_DMA_BUFFER		0x40000

static inline int edu_open(struct pci_dev *pdev)
{
	int err = pci_enable_device(pdev);

	if (err)
		return err;
	pci_set_master(pdev);
	/* The device has 28 address lines. */
	return dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(28));
}

static inline void edu_close(struct pci_dev *pdev)
{
	pci_clear_master(pdev);
	pci_disable_device(pdev);
}

#define EDU_DRIVER(probe_fn, remove_fn)					\
static const struct pci_device_id edu_ids[] = {				\
	{ PCI_DEVICE(0x1234, 0x11e8) },					\
	{ }								\
};									\
MODULE_DEVICE_TABLE(pci, edu_ids);					\
static struct pci_driver edu_driver = {					\
	.name = KBUILD_MODNAME,						\
	.id_table = edu_ids,						\
	.probe = probe_fn,						\
	.remove = remove_fn,						\
};									\
module_pci_driver(edu_driver)

/* Starts a transfer and waits for its end. */
static inline void edu_transfer(void __iomem *regs, dma_addr_t from, dma_addr_t to, u32 size, u32 command)
{
	unsigned int i;

	writel(lower_32_bits(from), regs + EDU_DMA_SRC);
	writel(lower_32_bits(to), regs + EDU_DMA_DST);
	writel(size, regs + EDU_DMA_COUNT);
	writel(EDU_DMA_START | command, regs + EDU_DMA_CMD);
	for (i = 0; i < 100 && (readl(regs + EDU_DMA_CMD) & EDU_DMA_START); i++)
		msleep(10);
}

/*
 * A driver whose probe calls run(dev, regs, buffer) with a heap buffer that nobody filled. It lies within the device's 28
 * address lines, so that no bounce buffer comes between.
 */
#define EDU_BUFFER(run, size)						\
static int edu_buffer_probe(struct pci_dev *pdev, const struct pci_device_id *id) \
{									\
	void __iomem *regs;						\
	void *buffer;							\
	int err = edu_open(pdev);					\
									\
	if (err)							\
		return err;						\
	regs = pci_iomap(pdev, 0, 0x100);				\
	buffer = kmalloc(size, GFP_KERNEL | GFP_DMA);			\
	if (!regs || !buffer) {						\
		if (regs)						\
			pci_iounmap(pdev, regs);			\
		kfree(buffer);						\
		edu_close(pdev);					\
		return -ENOMEM;						\
	}								\
	pci_set_drvdata(pdev, regs);					\
	run(&pdev->dev, regs, buffer);					\
	kfree(buffer);							\
	return 0;							\
}									\
static void edu_buffer_remove(struct pci_dev *pdev)			\
{									\
	pci_iounmap(pdev, pci_get_drvdata(pdev));			\
	edu_close(pdev);						\
}									\
EDU_DRIVER(edu_buffer_probe, edu_buffer_remove)

#endif
