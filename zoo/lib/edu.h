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

#endif
