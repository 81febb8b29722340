// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Sets the credits of an interrupt handler after the interrupt was requested.
 *
 * Twin: sets the credits of an interrupt handler before the interrupt is requested, and takes them
 * after it is freed.
 */
#include "race_irq.h"

static unsigned long credits;

static noinline irqreturn_t race_state_handle(int irq, void *data)
{
	if (!race_irq_mine())
		return IRQ_NONE;
	credits--; /* OTHER: */
	return IRQ_HANDLED;
}

static noinline void race_state_fill(void)
{
	WRITE_ONCE(credits, 64); /* BUG: data-race */
}

static int race_state_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int i, err;

#ifdef TWIN
	race_state_fill();
#endif
	err = race_irq_open(pdev, race_state_handle, NULL);
	if (err)
		return err;
#ifndef TWIN
	race_irq_raise();
	race_state_fill();
#endif
	for (i = 0; i < 3; i++)
		race_irq_raise();
	return 0;
}

static void race_state_remove(struct pci_dev *pdev)
{
	race_irq_close(pdev);
	race_use(credits);
	WRITE_ONCE(credits, 0);
}

EDU_DRIVER(race_state_probe, race_state_remove);
MODULE_DESCRIPTION("zoo: sets the credits of an interrupt handler");
