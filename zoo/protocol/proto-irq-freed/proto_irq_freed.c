// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees the adapter, and then the interrupt line whose handler gets the adapter.
 *
 * Twin: frees the interrupt line whose handler gets the adapter, and then the adapter.
 */
#include "zoo.h"
#include "edu.h"

struct adapter {
	unsigned int id;
};

/* The device never raises an interrupt here; others on the line may. */
static noinline irqreturn_t proto_irq_freed_handle(int irq, void *data)
{
	return IRQ_NONE;
}

static int proto_irq_freed_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct adapter *a;
	int err = edu_open(pdev);

	if (err)
		return err;
	err = -ENOMEM;
	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		goto close;
	err = request_irq(pdev->irq, proto_irq_freed_handle, IRQF_SHARED, KBUILD_MODNAME, a);
	if (err)
		goto free;
	pci_set_drvdata(pdev, a);
	return 0;
free:
	kfree(a);
close:
	edu_close(pdev);
	return err;
}

static noinline void proto_irq_freed_remove(struct pci_dev *pdev)
{
	struct adapter *a = pci_get_drvdata(pdev);

#ifdef TWIN
	free_irq(pdev->irq, a);
#endif
	kfree(a); /* BUG: protocol-order */
#ifndef TWIN
	free_irq(pdev->irq, a);
#endif
	edu_close(pdev);
}

EDU_DRIVER(proto_irq_freed_probe, proto_irq_freed_remove);
MODULE_DESCRIPTION("zoo: frees what the interrupt handler works on");
