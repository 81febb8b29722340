// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees its interrupt line when it stops the device, and again when the device goes.
 *
 * Twin: frees its interrupt line when it stops the device, and remembers that it did.
 */
#include "zoo.h"
#include "edu.h"

struct adapter {
	int irq;
	bool requested;
};

static irqreturn_t proto_irq_twice_handle(int irq, void *data)
{
	return IRQ_NONE;
}

static noinline void proto_irq_twice_stop(struct adapter *a)
{
#ifdef TWIN
	if (a->requested)
		free_irq(a->irq, a);
#else
	free_irq(a->irq, a); /* BUG: protocol-order */
#endif
	a->requested = false;
}

static int proto_irq_twice_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct adapter *a;
	int err = edu_open(pdev);

	if (err)
		return err;
	err = -ENOMEM;
	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		goto close;
	a->irq = pdev->irq;
	err = request_irq(a->irq, proto_irq_twice_handle, IRQF_SHARED, KBUILD_MODNAME, a);
	if (err)
		goto free;
	a->requested = true;
	pci_set_drvdata(pdev, a);
	return 0;
free:
	kfree(a);
close:
	edu_close(pdev);
	return err;
}

static void proto_irq_twice_remove(struct pci_dev *pdev)
{
	struct adapter *a = pci_get_drvdata(pdev);

	proto_irq_twice_stop(a);
	proto_irq_twice_stop(a);
	kfree(a);
	edu_close(pdev);
}

EDU_DRIVER(proto_irq_twice_probe, proto_irq_twice_remove);
MODULE_DESCRIPTION("zoo: frees an interrupt line twice");
