// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An interrupt handler counts under a lock; probe counts without.
 *
 * Twin: an interrupt handler counts under a lock; probe takes it with interrupts off.
 */
#include "race_irq.h"

static DEFINE_SPINLOCK(lock);
static unsigned long count;

static noinline irqreturn_t race_process_hardirq_handle(int irq, void *data)
{
	if (!race_irq_mine())
		return IRQ_NONE;
	spin_lock(&lock);
	count++; /* OTHER: */
	spin_unlock(&lock);
	return IRQ_HANDLED;
}

static noinline void race_process_hardirq_add(void)
{
#ifdef TWIN
	spin_lock_irq(&lock);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	spin_unlock_irq(&lock);
#endif
}

static int race_process_hardirq_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err = race_irq_open(pdev, race_process_hardirq_handle, NULL);

	if (err)
		return err;
	race_irq_raise();
	race_process_hardirq_add();
	race_irq_raise();
	return 0;
}

static void race_process_hardirq_remove(struct pci_dev *pdev)
{
	race_irq_close(pdev);
	race_use(count);
}

EDU_DRIVER(race_process_hardirq_probe, race_process_hardirq_remove);
MODULE_DESCRIPTION("zoo: process and interrupt handler share a counter");
