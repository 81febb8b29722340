// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An interrupt handler counts; a work item starts the count anew at any time.
 *
 * Twin: an interrupt handler counts; a work item starts the count anew while the line is disabled.
 */
#include "race_irq.h"

static unsigned long count;
static int line;

static noinline irqreturn_t race_hardirq_work_handle(int irq, void *data)
{
	if (!race_irq_mine())
		return IRQ_NONE;
	count++; /* OTHER: */
	return IRQ_HANDLED;
}

static noinline void race_hardirq_work_reset(struct work_struct *work)
{
#ifdef TWIN
	disable_irq(line);
#endif
	count = 0; /* BUG: data-race */
#ifdef TWIN
	enable_irq(line);
#endif
}

static DECLARE_WORK(work, race_hardirq_work_reset);

static int race_hardirq_work_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int i, err = race_irq_open(pdev, race_hardirq_work_handle, NULL);

	line = pdev->irq;
	for (i = 0; !err && i < 3; i++) {
		race_irq_raise();
		schedule_work(&work);
		race_pause();
	}
	return err;
}

static void race_hardirq_work_remove(struct pci_dev *pdev)
{
	cancel_work_sync(&work);
	race_irq_close(pdev);
	race_use(count);
}

EDU_DRIVER(race_hardirq_work_probe, race_hardirq_work_remove);
MODULE_DESCRIPTION("zoo: interrupt handler and work item share a counter");
