// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An interrupt handler counts under a lock; a thread only keeps interrupts off.
 *
 * Twin: an interrupt handler counts under a lock; a thread takes it with interrupts off.
 */
#include "race_irq.h"

static DEFINE_SPINLOCK(lock);
static unsigned long count;
static struct zoo_thread thread;

static noinline irqreturn_t race_hardirq_kthread_handle(int irq, void *data)
{
	unsigned long flags;

	if (!race_irq_mine())
		return IRQ_NONE;
	spin_lock_irqsave(&lock, flags);
	count++; /* OTHER: */
	spin_unlock_irqrestore(&lock, flags);
	return IRQ_HANDLED;
}

static noinline void race_hardirq_kthread_add(void)
{
	unsigned long flags;

#ifdef TWIN
	spin_lock_irqsave(&lock, flags);
#else
	local_irq_save(flags);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	spin_unlock_irqrestore(&lock, flags);
#else
	local_irq_restore(flags);
#endif
}

static void race_hardirq_kthread_body(void)
{
	int i;

	for (i = 0; i < 3; i++) {
		race_hardirq_kthread_add();
		msleep(10);
	}
}

static int race_hardirq_kthread_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int i, err = race_irq_open(pdev, race_hardirq_kthread_handle, NULL);

	if (err)
		return err;
	err = race_thread_start(&thread, race_hardirq_kthread_body, 1);
	if (err)
		race_irq_close(pdev);
	for (i = 0; !err && i < 3; i++)
		race_irq_raise();
	return err;
}

static void race_hardirq_kthread_remove(struct pci_dev *pdev)
{
	zoo_thread_stop(&thread);
	race_irq_close(pdev);
	race_use(count);
}

EDU_DRIVER(race_hardirq_kthread_probe, race_hardirq_kthread_remove);
MODULE_DESCRIPTION("zoo: interrupt handler and thread share a counter");
