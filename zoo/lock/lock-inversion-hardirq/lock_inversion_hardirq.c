// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The interrupt handler takes the spin lock that the probe takes with interrupts on.
 *
 * Twin: the interrupt handler takes the spin lock that the probe takes with interrupts off.
 */
#include "zoo.h"
#include "edu.h"

struct adapter {
	void __iomem *regs;
	spinlock_t lock;
	struct completion raised;
};

static noinline irqreturn_t lock_inversion_hardirq_handle(int irq, void *data)
{
	struct adapter *a = data;
	u32 status = readl(a->regs + EDU_IRQ_STATUS);

	if (!status)
		return IRQ_NONE;
	spin_lock(&a->lock);
	writel(status, a->regs + EDU_IRQ_ACK);
	spin_unlock(&a->lock);
	complete(&a->raised);
	return IRQ_HANDLED;
}

/* The device is quiet meanwhile, so that the handler does not come. */
static noinline void lock_inversion_hardirq_configure(struct adapter *a)
{
#ifdef TWIN
	unsigned long flags;

	spin_lock_irqsave(&a->lock, flags);
#else
	spin_lock(&a->lock); /* BUG: irq-inversion */
#endif
	writel(0x12, a->regs + EDU_LIVE);
#ifdef TWIN
	spin_unlock_irqrestore(&a->lock, flags);
#else
	spin_unlock(&a->lock);
#endif
}

static int lock_inversion_hardirq_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct adapter *a;
	int err = edu_open(pdev);

	if (err)
		return err;
	err = -ENOMEM;
	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		goto close;
	spin_lock_init(&a->lock);
	init_completion(&a->raised);
	a->regs = pci_iomap(pdev, 0, 0x100);
	if (!a->regs)
		goto free;
	err = request_irq(pdev->irq, lock_inversion_hardirq_handle, IRQF_SHARED, KBUILD_MODNAME, a);
	if (err)
		goto unmap;
	pci_set_drvdata(pdev, a);
	lock_inversion_hardirq_configure(a);
	writel(1, a->regs + EDU_IRQ_RAISE);
	wait_for_completion_timeout(&a->raised, HZ);
	return 0;
unmap:
	pci_iounmap(pdev, a->regs);
free:
	kfree(a);
close:
	edu_close(pdev);
	return err;
}

static void lock_inversion_hardirq_remove(struct pci_dev *pdev)
{
	struct adapter *a = pci_get_drvdata(pdev);

	free_irq(pdev->irq, a);
	pci_iounmap(pdev, a->regs);
	kfree(a);
	edu_close(pdev);
}

EDU_DRIVER(lock_inversion_hardirq_probe, lock_inversion_hardirq_remove);
MODULE_DESCRIPTION("zoo: takes the interrupt handler's lock with interrupts on");
