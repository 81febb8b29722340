// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Writes a setting to a register that the failed look-up of defaults left unset.
 *
 * Twin: writes a setting to a register that was set beside members that were not.
 */
#include "zoo.h"
#include "edu.h"

struct settings {
	u32 id;
	u32 value;
	u32 unused[4];
};

static noinline void uninit_mmio_defaults(struct settings *s)
{
	s->id = 1;
#ifdef TWIN
	s->value = 5;
#endif
}

static noinline void uninit_mmio_program(void __iomem *regs, const struct settings *s)
{
	writel(s->id, regs + EDU_LIVE);
	writel(s->value, regs + EDU_LIVE); /* BUG: uninit-to-device */
}

static int uninit_mmio_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct settings *s;
	void __iomem *regs;
	int err = edu_open(pdev);

	if (err)
		return err;
	regs = pci_iomap(pdev, 0, 0x100);
	s = kmalloc(sizeof(*s), GFP_KERNEL);
	if (!regs || !s) {
		if (regs)
			pci_iounmap(pdev, regs);
		kfree(s);
		edu_close(pdev);
		return -ENOMEM;
	}
	pci_set_drvdata(pdev, regs);
	uninit_mmio_defaults(s);
	uninit_mmio_program(regs, s);
	kfree(s);
	return 0;
}

static void uninit_mmio_remove(struct pci_dev *pdev)
{
	pci_iounmap(pdev, pci_get_drvdata(pdev));
	edu_close(pdev);
}

EDU_DRIVER(uninit_mmio_probe, uninit_mmio_remove);
MODULE_DESCRIPTION("zoo: writes an undefined value to a device register");
