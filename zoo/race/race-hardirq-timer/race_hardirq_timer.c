// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An interrupt handler and a timer function count, each under a lock of its own.
 *
 * Twin: an interrupt handler and a timer function count under one lock.
 */
#include "race_irq.h"

static DEFINE_SPINLOCK(lock);
#ifndef TWIN
static DEFINE_SPINLOCK(timer_lock);
#endif
static struct timer_list timer;
static unsigned long count;

static noinline irqreturn_t race_hardirq_timer_handle(int irq, void *data)
{
	if (!race_irq_mine())
		return IRQ_NONE;
	spin_lock(&lock);
	count++; /* OTHER: */
	spin_unlock(&lock);
	return IRQ_HANDLED;
}

static noinline void race_hardirq_timer_expire(struct timer_list *t)
{
	unsigned long flags;

#ifdef TWIN
	spin_lock_irqsave(&lock, flags);
#else
	spin_lock_irqsave(&timer_lock, flags);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	spin_unlock_irqrestore(&lock, flags);
#else
	spin_unlock_irqrestore(&timer_lock, flags);
#endif
}

static int race_hardirq_timer_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int i, err;

	timer_setup(&timer, race_hardirq_timer_expire, 0);
	err = race_irq_open(pdev, race_hardirq_timer_handle, NULL);
	for (i = 0; !err && i < 3; i++) {
		mod_timer(&timer, jiffies + 1);
		race_irq_raise();
	}
	return err;
}

static void race_hardirq_timer_remove(struct pci_dev *pdev)
{
	race_irq_close(pdev);
	timer_delete_sync(&timer);
	race_use(count);
}

EDU_DRIVER(race_hardirq_timer_probe, race_hardirq_timer_remove);
MODULE_DESCRIPTION("zoo: interrupt handler and timer share a counter");
