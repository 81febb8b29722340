/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What drivers of SATA controllers include: a controller that libata knows, each of whose ports is a domain.
 *
 * A port's driver follows the protocols `sata` and `irq`. libata's calls of a low-level driver become messages to it. What
 * the driver completes is completed under the port's lock, in the driver's own context.
 */
#ifndef ACTIVE_ATA_H
#define ACTIVE_ATA_H

#include <linux/libata.h>

#include "active.h"

/* What the driver reports of a failure: SATA_FAILED, SATA_FATAL and SATA_LINK_CHANGED. */
#define ACTIVE_ATA_ERRORS(mask, serror) ((long)((u64)(serror) << 32 | (mask)))

/* The most that AHCI allows. */
#define ACTIVE_ATA_PORTS 32

struct active_pci_driver;
struct pci_dev;

/**
 * struct active_ata_controller - A controller, as its driver sees it; at the beginning of a->priv of the driver of the
 * PCI device, which fills in all but @domains before it emits `probed`. Interrupts of the ports are off until a port thaws.
 * @ports: The numbers of the ports that the controller has, as bits.
 * @port_count: One more than the highest of them.
 * @flags: ATA_FLAG_*.
 * @irq: The interrupt's number.
 * @irq_flags: IRQF_*.
 * @domains: The ports' domains, for the top half.
 */
struct active_ata_controller {
	u32 ports;
	unsigned int port_count;
	unsigned long flags;
	int irq;
	unsigned long irq_flags;
	struct active *domains[ACTIVE_ATA_PORTS];
};

/**
 * struct active_ata_port - A port, as its driver sees it; at the beginning of a->priv.
 * @ap: libata's port; from SATA_START to SATA_STOPPED.
 * @index: The port's number in the controller.
 * @controller: The controller.
 * @device_fis: Where the device's last register FIS is. Set before SATA_STARTED; read when a command has ended.
 * @pio_fis: The same of its last PIO setup FIS.
 */
struct active_ata_port {
	struct ata_port *ap;
	unsigned int index;
	struct active_ata_controller *controller;
	const u8 *device_fis;
	const u8 *pio_fis;
};

/**
 * struct active_ata_options - What a driver's ports are like; active_pci_driver.data.
 * @main: The main function of a port's driver.
 * @protocols: active_program_MAIN.
 * @port_size: Bytes of a port's a->priv.
 * @sht: The SCSI hosts' template.
 * @top_half: Acknowledges an interrupt and calls active_interrupt() for ports; its argument is the controller.
 * @bar: The PCI region of the registers, for the kernel's log.
 * @port_base: Where port 0's registers are in it.
 * @port_distance: How far those of two ports are apart.
 */
struct active_ata_options {
	void (*main)(struct active *a);
	const char *protocols;
	size_t port_size;
	struct scsi_host_template *sht;
	irqreturn_t (*top_half)(int irq, void *controller);
	int bar;
	unsigned int port_base;
	unsigned int port_distance;
};

/**
 * active_ata_bound() - Makes the ports' domains and gives the controller to libata; active_pci_driver.bound.
 * @a: The controller's domain.
 * @pdev: The device.
 * Context: May sleep.
 * Return: 0 or an error.
 */
int active_ata_bound(struct active *a, struct pci_dev *pdev);

/**
 * active_ata_leaving() - Takes the controller from libata and ends the ports' domains; active_pci_driver.leaving.
 * Context: May sleep.
 */
void active_ata_leaving(struct active *a, struct pci_dev *pdev);

#endif
