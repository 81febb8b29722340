// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The interrupt handler counts by a number from the device, which it trusts to be small.
 *
 * Twin: the interrupt handler counts by a number from the device, which it checks.
 */
#include "zoo.h"
#include "edu.h"

#define COUNTERS 25

struct adapter {
	void __iomem *regs;
	u32 *counters;
	struct completion raised;
};

static noinline irqreturn_t oob_irq_handle(int irq, void *data)
{
	struct adapter *a = data;
	u32 status = readl(a->regs + EDU_IRQ_STATUS);

	if (!status)
		return IRQ_NONE;
	writel(status, a->regs + EDU_IRQ_ACK);
	complete(&a->raised);
#ifdef TWIN
	if (status >= COUNTERS)
		return IRQ_HANDLED;
#endif
	WRITE_ONCE(a->counters[status], 1); /* BUG: out-of-bounds */
	return IRQ_HANDLED;
}

static noinline void oob_irq_raise(struct adapter *a, u32 status)
{
	reinit_completion(&a->raised);
	writel(status, a->regs + EDU_IRQ_RAISE);
	wait_for_completion_timeout(&a->raised, HZ);
}

static int oob_irq_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct adapter *a;
	int err = edu_open(pdev);

	if (err)
		return err;
	err = -ENOMEM;
	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		goto close;
	init_completion(&a->raised);
	a->counters = kcalloc(COUNTERS, sizeof(*a->counters), GFP_KERNEL);
	if (!a->counters)
		goto free;
	a->regs = pci_iomap(pdev, 0, 0x100);
	if (!a->regs)
		goto free_counters;
	err = request_irq(pdev->irq, oob_irq_handle, IRQF_SHARED, KBUILD_MODNAME, a);
	if (err)
		goto unmap;
	pci_set_drvdata(pdev, a);
	oob_irq_raise(a, COUNTERS - 1);
	oob_irq_raise(a, COUNTERS);
	return 0;
unmap:
	pci_iounmap(pdev, a->regs);
free_counters:
	kfree(a->counters);
free:
	kfree(a);
close:
	edu_close(pdev);
	return err;
}

static void oob_irq_remove(struct pci_dev *pdev)
{
	struct adapter *a = pci_get_drvdata(pdev);

	free_irq(pdev->irq, a);
	pci_iounmap(pdev, a->regs);
	kfree(a->counters);
	kfree(a);
	edu_close(pdev);
}

EDU_DRIVER(oob_irq_probe, oob_irq_remove);
MODULE_DESCRIPTION("zoo: counts in an interrupt handler past its counters");
