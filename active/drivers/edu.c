// SPDX-License-Identifier: GPL-2.0-or-later
/* The active driver of QEMU's device `edu`: it computes factorials. */
#include "factor.h"

enum { IDENTITY = 0x00, LIVENESS = 0x04, FACTORIAL = 0x08, STATUS = 0x20, IRQ_STATUS = 0x24, IRQ_ACK = 0x64 };
enum { COMPUTING = 0x01, WANTS_IRQ = 0x80 };
/* The factorial of 13 has more than 32 bits. */
#define GREATEST 12

struct edu {
	struct active *a;
	struct pci_dev *pdev;
	void __iomem *registers;
};

static irqreturn_t interrupt(int irq, void *data)
{
	struct edu *e = data;
	u32 bits = ioread32(e->registers + IRQ_STATUS);

	if (!bits || bits == ~0u)
		return IRQ_NONE;
	iowrite32(bits, e->registers + IRQ_ACK);
	active_interrupt(e->a, bits);
	return IRQ_HANDLED;
}

/* Takes the device. Returns 0 or an error. */
static int start(struct edu *e)
{
	int err = pci_enable_device(e->pdev);

	if (err)
		return err;
	pci_set_master(e->pdev);
	e->registers = pci_iomap(e->pdev, 0, 0);
	err = e->registers ? pci_alloc_irq_vectors(e->pdev, 1, 1, PCI_IRQ_ALL_TYPES) : -ENOMEM;
	if (err < 0)
		goto unmap;
	iowrite32(0x1234567, e->registers + LIVENESS);
	err = -ENODEV;
	if ((ioread32(e->registers + IDENTITY) & 0xffff) == 0xed && ioread32(e->registers + LIVENESS) == ~0x1234567u)
		err = request_irq(pci_irq_vector(e->pdev, 0), interrupt, IRQF_SHARED, "active_edu", e);
	if (!err)
		return 0;
	pci_free_irq_vectors(e->pdev);
unmap:
	if (e->registers)
		pci_iounmap(e->pdev, e->registers);
	pci_disable_device(e->pdev);
	return err;
}

static void stop(struct edu *e)
{
	free_irq(pci_irq_vector(e->pdev, 0), e);
	pci_free_irq_vectors(e->pdev);
	pci_iounmap(e->pdev, e->registers);
	pci_disable_device(e->pdev);
}

/* Has the device compute, and waits for its interrupt. Returns the factorial or an error. */
static long compute(struct active *a, struct edu *e, long n)
{
	struct active_message second = { .number = 1000 };

	if (n < 0 || n > GREATEST)
		return -EINVAL;
	/* All bits of a device that is gone are set. */
	if (ioread32(e->registers + STATUS) & COMPUTING)
		return -EBUSY;
	iowrite32(WANTS_IRQ, e->registers + STATUS);
	iowrite32(n, e->registers + FACTORIAL);
	EMIT(a, TIMER_START, &second);
	if (AWAIT(a, IRQ_RAISED, TIMER_EXPIRED) == TIMER_EXPIRED)
		return -ETIMEDOUT;
	EMIT(a, IRQ_SERVICED);
	EMIT(a, TIMER_CANCEL);
	if (ioread32(e->registers + STATUS) & COMPUTING)
		return -EIO;
	return ioread32(e->registers + FACTORIAL);
}

static void factor(struct active *a, struct edu *e, bool usable)
{
	struct active_message m = { .number = usable ? compute(a, e, factor_request_n(a->message)) : -EIO };

	if (m.number < 0)
		EMIT(a, FACTOR_FAIL, &m);
	else
		EMIT(a, FACTOR_ANSWER, &m);
}

/* Handles messages until the device is removed. */
static void serve(struct active *a, struct edu *e)
{
	bool usable = true;

	for (;;) {
		switch (AWAIT(a, FACTOR_REQUEST, IRQ_RAISED, PCI_SUSPEND, PCI_RESUME, PCI_SHUTDOWN, PCI_ERROR, PCI_REMOVE, PCI_UNPLUG)) {
		case FACTOR_REQUEST:
			factor(a, e, usable);
			break;
		case IRQ_RAISED:
			/* It came too late for its request. */
			EMIT(a, IRQ_SERVICED);
			break;
		case PCI_SUSPEND:
			usable = false;
			EMIT(a, PCI_SUSPENDED);
			break;
		case PCI_RESUME:
			usable = true;
			EMIT(a, PCI_RESUMED);
			break;
		case PCI_SHUTDOWN:
			usable = false;
			EMIT(a, PCI_SHUT_DOWN);
			break;
		case PCI_ERROR:
			usable = false;
			EMIT(a, PCI_ERROR_FATAL);
			break;
		case PCI_REMOVE:
			stop(e);
			EMIT(a, IRQ_DISABLE);
			EMIT(a, PCI_REMOVED);
			return;
		case PCI_UNPLUG:
			stop(e);
			EMIT(a, IRQ_DISABLE);
			EMIT(a, PCI_UNPLUGGED);
			return;
		}
	}
}

static void edu_main(struct active *a)
{
	struct edu *e = a->priv;
	struct active_message m = {};

	AWAIT(a, PCI_PROBE);
	e->a = a;
	e->pdev = pci_probe_dev(a->message);
	m.number = start(e);
	if (m.number) {
		EMIT(a, PCI_PROBE_FAILED, &m);
		return;
	}
	EMIT(a, IRQ_ENABLE);
	EMIT(a, PCI_PROBED);
	serve(a, e);
}
ACTIVE_PROGRAM(edu_main, "pci irq timer factor");

static const struct pci_device_id ids[] = { { PCI_DEVICE(0x1234, 0x11e8) }, {} };
MODULE_DEVICE_TABLE(pci, ids);

static struct active_pci_driver edu = {
	.name = "active_edu", .ids = ids, .main = edu_main, .protocols = active_program_edu_main, .priv_size = sizeof(struct edu),
	.attach = factor_attach, .detach = factor_detach, .driver = { .dev_groups = factor_groups },
};
module_active_pci_driver(edu);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Active driver of QEMU's device edu");
