// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An active driver of AHCI controllers, written from the Serial ATA AHCI 1.3.1 specification: the controller.
 *
 * It is a domain that follows the protocol `pci`. ahci_port.c has its ports.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>

#include "active_pci.h"
#include "ahci.h"

/* What the controller does. */
enum mode {
	UNBOUND,
	BOUND,
	SUSPENDED,
	READY,
	LOST,
	HALTED,
};

/* Resets the controller, which takes up to a second (10.4.3). */
static int reset_controller(struct ahci *h)
{
	unsigned int i;

	writel(readl(h->mmio + GHC) | GHC_AHCI, h->mmio + GHC);
	writel(readl(h->mmio + GHC) | GHC_RESET, h->mmio + GHC);
	for (i = 0; i < 1000 && readl(h->mmio + GHC) & GHC_RESET; i++)
		usleep_range(1000, 1500);
	if (readl(h->mmio + GHC) & GHC_RESET)
		return -EIO;
	writel(GHC_AHCI, h->mmio + GHC);
	return 0;
}

static void allow_interrupts(struct ahci *h)
{
	writel(readl(h->mmio + IS), h->mmio + IS);
	writel(GHC_AHCI | GHC_INTERRUPTS, h->mmio + GHC);
	readl(h->mmio + GHC);
}

/* Takes an interrupt of its own, or the shared line. */
static int get_interrupt(struct ahci *h)
{
	int count = pci_alloc_irq_vectors(h->pdev, 1, 1, PCI_IRQ_ALL_TYPES & ~PCI_IRQ_MSIX);

	if (count < 0)
		return count;
	h->ata.irq = pci_irq_vector(h->pdev, 0);
	h->ata.irq_flags = h->pdev->msi_enabled ? 0 : IRQF_SHARED;
	return 0;
}

static int bring_up(struct ahci *h)
{
	bool wide;
	int error;

	h->capabilities = readl(h->mmio + CAP);
	h->ata.ports = readl(h->mmio + PI);
	h->ata.port_count = fls(h->ata.ports);
	if (h->ata.ports == ~0u && h->capabilities == ~0u)
		return -ENODEV;
	if (!h->ata.ports)
		return -ENODEV;
	h->ata.flags = ATA_FLAG_SATA | ATA_FLAG_PIO_DMA | ATA_FLAG_ACPI_SATA;
	if (h->capabilities & CAP_NCQ)
		h->ata.flags |= ATA_FLAG_NCQ | ATA_FLAG_FPDMA_AA;
	wide = h->capabilities & CAP_64;
	error = dma_set_mask_and_coherent(&h->pdev->dev, wide ? DMA_BIT_MASK(64) : DMA_BIT_MASK(32));
	if (error)
		return error;
	error = reset_controller(h);
	if (error)
		return error;
	pci_set_master(h->pdev);
	error = get_interrupt(h);
	if (error)
		return error;
	dev_info(&h->pdev->dev, "AHCI %x, capabilities %x, ports %x\n", readl(h->mmio + 0x10), h->capabilities, h->ata.ports);
	allow_interrupts(h);
	return 0;
}

static int probe(struct ahci *h, struct pci_dev *pdev)
{
	int error = pci_enable_device(pdev);

	if (error)
		return error;
	h->pdev = pdev;
	error = pci_request_region(pdev, ahci_options.bar, "active_ahci");
	if (error)
		goto disable;
	h->mmio = pci_iomap(pdev, ahci_options.bar, 0);
	if (!h->mmio) {
		error = -ENOMEM;
		goto release;
	}
	error = bring_up(h);
	if (!error)
		return 0;
	pci_iounmap(pdev, h->mmio);
release:
	pci_release_region(pdev, ahci_options.bar);
disable:
	pci_disable_device(pdev);
	return error;
}

/* The device may be gone; then what is written has no effect. */
static void remove(struct ahci *h)
{
	writel(GHC_AHCI, h->mmio + GHC);
	pci_free_irq_vectors(h->pdev);
	pci_iounmap(h->pdev, h->mmio);
	pci_release_region(h->pdev, ahci_options.bar);
	pci_disable_device(h->pdev);
}

static enum mode probed(struct active *a, struct ahci *h)
{
	int error = probe(h, pci_probe_dev(a->message));

	if (!error) {
		EMIT(a, PCI_PROBED);
		return BOUND;
	}
	pci_probe_failed_set_error(&h->reply, error);
	EMIT(a, PCI_PROBE_FAILED, &h->reply);
	return UNBOUND;
}

static enum mode removed(struct active *a, struct ahci *h)
{
	remove(h);
	EMIT(a, PCI_REMOVED);
	return UNBOUND;
}

static enum mode unplugged(struct active *a, struct ahci *h)
{
	remove(h);
	EMIT(a, PCI_UNPLUGGED);
	return UNBOUND;
}

/* The ports sleep already, and the PCI core saves and powers down. */
static enum mode suspended(struct active *a, struct ahci *h)
{
	writel(GHC_AHCI, h->mmio + GHC);
	readl(h->mmio + GHC);
	EMIT(a, PCI_SUSPENDED);
	return SUSPENDED;
}

static enum mode resumed(struct active *a, struct ahci *h)
{
	int error = reset_controller(h);

	if (!error) {
		allow_interrupts(h);
		EMIT(a, PCI_RESUMED);
		return BOUND;
	}
	pci_resume_failed_set_error(&h->reply, error);
	EMIT(a, PCI_RESUME_FAILED, &h->reply);
	return LOST;
}

/* All ports stop, whatever they do. */
static enum mode shut_down(struct active *a, struct ahci *h)
{
	reset_controller(h);
	EMIT(a, PCI_SHUT_DOWN);
	return HALTED;
}

/* An error that has stopped the device needs a reset of the ports, and libata cannot be asked for one here. */
static enum mode error(struct active *a, struct ahci *h)
{
	if (pci_error_state(a->message) == (__force long)pci_channel_io_normal) {
		EMIT(a, PCI_ERROR_HARMLESS);
		return READY;
	}
	EMIT(a, PCI_ERROR_FATAL);
	return LOST;
}

static enum mode serve_running(struct active *a, struct ahci *h)
{
	switch (AWAIT(a, PCI_REMOVE, PCI_UNPLUG, PCI_SUSPEND, PCI_ERROR, PCI_SHUTDOWN)) {
	case PCI_REMOVE:
		return removed(a, h);
	case PCI_UNPLUG:
		return unplugged(a, h);
	case PCI_SUSPEND:
		return suspended(a, h);
	case PCI_ERROR:
		return error(a, h);
	default:
		return shut_down(a, h);
	}
}

static enum mode serve_suspended(struct active *a, struct ahci *h)
{
	switch (AWAIT(a, PCI_REMOVE, PCI_UNPLUG, PCI_RESUME, PCI_SHUTDOWN)) {
	case PCI_REMOVE:
		return removed(a, h);
	case PCI_UNPLUG:
		return unplugged(a, h);
	case PCI_RESUME:
		return resumed(a, h);
	default:
		return shut_down(a, h);
	}
}

/* An error was harmless, and others follow or it is over. */
static enum mode serve_ready(struct active *a, struct ahci *h)
{
	switch (AWAIT(a, PCI_REMOVE, PCI_UNPLUG, PCI_ERROR, PCI_MMIO_ENABLED, PCI_SLOT_RESET, PCI_ERROR_OVER, PCI_SHUTDOWN)) {
	case PCI_REMOVE:
		return removed(a, h);
	case PCI_UNPLUG:
		return unplugged(a, h);
	case PCI_ERROR:
		return error(a, h);
	case PCI_MMIO_ENABLED:
		EMIT(a, PCI_MMIO_USABLE);
		return READY;
	case PCI_SLOT_RESET:
		EMIT(a, PCI_SLOT_FAILED);
		return LOST;
	case PCI_ERROR_OVER:
		EMIT(a, PCI_RECOVERED);
		return BOUND;
	default:
		return shut_down(a, h);
	}
}

static enum mode serve_lost(struct active *a, struct ahci *h)
{
	switch (AWAIT(a, PCI_REMOVE, PCI_UNPLUG, PCI_SHUTDOWN)) {
	case PCI_REMOVE:
		return removed(a, h);
	case PCI_UNPLUG:
		return unplugged(a, h);
	default:
		return shut_down(a, h);
	}
}

static enum mode serve_halted(struct active *a, struct ahci *h)
{
	if (AWAIT(a, PCI_REMOVE, PCI_UNPLUG) == PCI_REMOVE)
		return removed(a, h);
	return unplugged(a, h);
}

static void ahci_main(struct active *a)
{
	struct ahci *h = a->priv;
	enum mode mode;

	AWAIT(a, PCI_PROBE);
	mode = probed(a, h);
	while (mode != UNBOUND) {
		switch (mode) {
		case BOUND:
			mode = serve_running(a, h);
			break;
		case SUSPENDED:
			mode = serve_suspended(a, h);
			break;
		case READY:
			mode = serve_ready(a, h);
			break;
		case LOST:
			mode = serve_lost(a, h);
			break;
		default:
			mode = serve_halted(a, h);
		}
	}
}

ACTIVE_PROGRAM(ahci_main, "pci");

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE_CLASS(PCI_CLASS_STORAGE_SATA_AHCI, 0xffffff) },
	{}
};
MODULE_DEVICE_TABLE(pci, ids);

static struct active_pci_driver ahci_driver = {
	.name = "active_ahci",
	.ids = ids,
	.main = ahci_main,
	.protocols = active_program_ahci_main,
	.priv_size = sizeof(struct ahci),
	.bound = active_ata_bound,
	.leaving = active_ata_leaving,
	.data = &ahci_options,
};
module_active_pci_driver(ahci_driver);

MODULE_DESCRIPTION("AHCI controllers, by messages");
MODULE_LICENSE("GPL");
