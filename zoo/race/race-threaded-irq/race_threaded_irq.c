// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An interrupt's thread counts under a mutex; probe counts without.
 *
 * Twin: an interrupt's thread and probe count under a mutex.
 */
#include "race_irq.h"

static DEFINE_MUTEX(mutex);
static unsigned long count;
static unsigned long hits;

static irqreturn_t race_threaded_irq_handle(int irq, void *data)
{
	if (!race_irq_mine())
		return IRQ_NONE;
	/* Comes before the thread's run that it wakes; the thread does not look at it. */
	hits++;
	return IRQ_WAKE_THREAD;
}

static noinline irqreturn_t race_threaded_irq_run(int irq, void *data)
{
	mutex_lock(&mutex);
	count++; /* OTHER: */
	mutex_unlock(&mutex);
	return IRQ_HANDLED;
}

static noinline void race_threaded_irq_add(void)
{
#ifdef TWIN
	mutex_lock(&mutex);
#endif
	count++; /* BUG: data-race */
#ifdef TWIN
	mutex_unlock(&mutex);
#endif
}

static int race_threaded_irq_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int i, err = race_irq_open(pdev, race_threaded_irq_handle, race_threaded_irq_run);

	for (i = 0; !err && i < 3; i++) {
		race_irq_raise();
		race_threaded_irq_add();
	}
	return err;
}

static void race_threaded_irq_remove(struct pci_dev *pdev)
{
	race_irq_close(pdev);
	race_use(count + hits);
}

EDU_DRIVER(race_threaded_irq_probe, race_threaded_irq_remove);
MODULE_DESCRIPTION("zoo: process and interrupt thread share a counter");
