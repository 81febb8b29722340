// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Disables an interrupt without waiting for its handler and starts the handler's count anew.
 *
 * Twin: disables an interrupt, waits for its handler and starts the handler's count anew.
 */
#include "race_irq.h"

static unsigned long count;

static noinline irqreturn_t race_synchronize_irq_handle(int irq, void *data)
{
	if (!race_irq_mine())
		return IRQ_NONE;
	count++; /* OTHER: */
	return IRQ_HANDLED;
}

static noinline void race_synchronize_irq_restart(int irq)
{
	disable_irq_nosync(irq);
#ifdef TWIN
	synchronize_irq(irq);
#endif
	count = 0; /* BUG: data-race */
	enable_irq(irq);
}

static int race_synchronize_irq_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int i, err = race_irq_open(pdev, race_synchronize_irq_handle, NULL);

	for (i = 0; !err && i < 3; i++) {
		race_irq_raise();
		race_synchronize_irq_restart(pdev->irq);
	}
	return err;
}

static void race_synchronize_irq_remove(struct pci_dev *pdev)
{
	race_irq_close(pdev);
	race_use(count);
}

EDU_DRIVER(race_synchronize_irq_probe, race_synchronize_irq_remove);
MODULE_DESCRIPTION("zoo: starts the count of an interrupt handler anew");
