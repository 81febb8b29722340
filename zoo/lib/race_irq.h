/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupts for the modules with data races: the edu device raises one on request.
 */
#ifndef ZOO_RACE_IRQ_H
#define ZOO_RACE_IRQ_H

#include "race.h"
#include "edu.h"

static void __iomem *race_regs;

/* Whether the interrupt is the device's, which then takes it back. */
static inline bool race_irq_mine(void)
{
	u32 status = readl(race_regs + EDU_IRQ_STATUS);

	if (status)
		writel(status, race_regs + EDU_IRQ_ACK);
	return status;
}

/* The handler has run when this returns, which only time shows. */
static inline void race_irq_raise(void)
{
	writel(1, race_regs + EDU_IRQ_RAISE);
	msleep(10);
}

static inline int race_irq_map(struct pci_dev *pdev)
{
	int err = edu_open(pdev);

	if (err)
		return err;
	race_regs = pci_iomap(pdev, 0, 0x100);
	if (race_regs)
		return 0;
	edu_close(pdev);
	return -ENOMEM;
}

static inline void race_irq_unmap(struct pci_dev *pdev)
{
	pci_iounmap(pdev, race_regs);
	edu_close(pdev);
}

static inline int race_irq_open(struct pci_dev *pdev, irq_handler_t handler, irq_handler_t thread)
{
	int err = race_irq_map(pdev);

	if (err)
		return err;
	err = request_threaded_irq(pdev->irq, handler, thread, IRQF_SHARED, KBUILD_MODNAME, pdev);
	if (err)
		race_irq_unmap(pdev);
	return err;
}

static inline void race_irq_close(struct pci_dev *pdev)
{
	free_irq(pdev->irq, pdev);
	race_irq_unmap(pdev);
}

#endif
