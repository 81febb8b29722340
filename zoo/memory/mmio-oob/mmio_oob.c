// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps the registers up to 0x80 and reads the DMA registers behind them; the page hides it.
 *
 * Twin: maps the registers up to the last one it reads.
 */
#include "zoo.h"
#include "edu.h"

static noinline void mmio_oob_scan(void __iomem *regs)
{
	zoo_sink = readl(regs + EDU_ID);
	zoo_sink = readl(regs + EDU_DMA_COUNT); /* BUG: mmio-out-of-bounds */
}

static int mmio_oob_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	void __iomem *regs;
	int err = edu_open(pdev);

	if (err)
		return err;
#ifdef TWIN
	regs = pci_iomap(pdev, 0, EDU_DMA_COUNT + 4);
#else
	regs = pci_iomap(pdev, 0, 0x80);
#endif
	if (!regs) {
		edu_close(pdev);
		return -ENOMEM;
	}
	pci_set_drvdata(pdev, regs);
	mmio_oob_scan(regs);
	return 0;
}

static void mmio_oob_remove(struct pci_dev *pdev)
{
	pci_iounmap(pdev, pci_get_drvdata(pdev));
	edu_close(pdev);
}

EDU_DRIVER(mmio_oob_probe, mmio_oob_remove);
MODULE_DESCRIPTION("zoo: reads a device register beyond the range it mapped");
