// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Takes the queue away from the interrupt handler, and the interrupt afterwards.
 *
 * Twin: takes the interrupt away, and the queue of its handler afterwards.
 */
#include "race_irq.h"

struct queue {
	unsigned long responses;
};

struct adapter {
	struct queue *queue;
};

static struct adapter *adapter;

static noinline irqreturn_t race_teardown_handle(int irq, void *data)
{
	struct queue *queue;

	if (!race_irq_mine())
		return IRQ_NONE;
	queue = READ_ONCE(adapter->queue); /* OTHER: */
	if (queue)
		queue->responses++;
	return IRQ_HANDLED;
}

static noinline struct queue *race_teardown_detach(void)
{
	struct queue *queue = adapter->queue;

	WRITE_ONCE(adapter->queue, NULL); /* BUG: data-race */
	return queue;
}

static int race_teardown_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err = -ENOMEM;

	adapter = kzalloc(sizeof(*adapter), GFP_KERNEL);
	if (!adapter)
		return err;
	adapter->queue = kzalloc(sizeof(*adapter->queue), GFP_KERNEL);
	if (adapter->queue)
		err = race_irq_open(pdev, race_teardown_handle, NULL);
	if (err) {
		kfree(adapter->queue);
		kfree(adapter);
		return err;
	}
	race_irq_raise();
	return 0;
}

static void race_teardown_remove(struct pci_dev *pdev)
{
	struct queue *queue;

	writel(1, race_regs + EDU_IRQ_RAISE); /* the device answers late */
#ifdef TWIN
	race_irq_close(pdev);
#endif
	queue = race_teardown_detach();
#ifndef TWIN
	race_irq_close(pdev);
#endif
	kfree(queue);
	kfree(adapter);
}

EDU_DRIVER(race_teardown_probe, race_teardown_remove);
MODULE_DESCRIPTION("zoo: tears down what an interrupt handler uses");
