// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An interrupt handler counts under a lock; the tasklet that it schedules counts without.
 *
 * Twin: an interrupt handler counts under a lock; the tasklet that it schedules takes it with
 * interrupts off.
 */
#include "race_irq.h"

static DEFINE_SPINLOCK(lock);
static unsigned long count;

static noinline void race_softirq_hardirq_run(struct tasklet_struct *t)
{
#ifdef TWIN
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	spin_unlock_irqrestore(&lock, flags);
#endif
}

static DECLARE_TASKLET(tasklet, race_softirq_hardirq_run);

static noinline irqreturn_t race_softirq_hardirq_handle(int irq, void *data)
{
	if (!race_irq_mine())
		return IRQ_NONE;
	spin_lock(&lock);
	count++; /* OTHER: */
	spin_unlock(&lock);
	tasklet_schedule(&tasklet);
	return IRQ_HANDLED;
}

static int race_softirq_hardirq_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int i, err = race_irq_open(pdev, race_softirq_hardirq_handle, NULL);

	for (i = 0; !err && i < 3; i++)
		race_irq_raise();
	return err;
}

static void race_softirq_hardirq_remove(struct pci_dev *pdev)
{
	race_irq_close(pdev);
	tasklet_kill(&tasklet);
	race_use(count);
}

EDU_DRIVER(race_softirq_hardirq_probe, race_softirq_hardirq_remove);
MODULE_DESCRIPTION("zoo: tasklet and interrupt handler share a counter");
