/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The wrapper for ATA, inside: ata.c has libata's calls, ata_host.c the controllers. */
#ifndef ACTIVE_WRAPPERS_ATA_HOST_H
#define ACTIVE_WRAPPERS_ATA_HOST_H

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "ata.h"
#include "wrapper.h"

/* No CPU. */
#define ACTIVE_ATA_NOBODY (-1)

/**
 * struct ata_domain - A port.
 * @domain: The driver of it.
 * @shared: What the driver sees, its a->priv.
 * @ap: libata's port, from start to stop.
 * @lock: libata's port lock, @ap->lock.
 * @holder: The CPU that sends to @domain under @lock, or ACTIVE_ATA_NOBODY.
 * @asking: Protects @request; nothing nests in it but what the driver's domain takes.
 * @request: What the error handler asks for.
 * @stopped: Requests are refused. Protected by @asking.
 * @commands: A message for each tag of libata.
 * @freeze: Sent if @freezing.
 * @thaw: Sent if @thawing.
 * @freezing: SATA_FREEZE has not been answered. Bit 0; atomic.
 * @thawing: The same of SATA_THAW.
 * @failing: Reports @errors to libata.
 * @error_lock: Protects @errors and @report. Taken with interrupts off; nothing nests in it.
 * @errors: ACTIVE_ATA_ERRORS() that the driver has reported.
 * @report: SATA_FAILED, SATA_FATAL or SATA_LINK_CHANGED, whichever is worst.
 */
struct ata_domain {
	struct active *domain;
	struct active_ata_port *shared;
	struct ata_port *ap;
	spinlock_t lock;
	int holder;
	struct mutex asking;
	struct active_request request;
	bool stopped;
	struct active_message commands[ATA_MAX_QUEUE + 1];
	struct active_message freeze, thaw;
	unsigned long freezing, thawing;
	struct work_struct failing;
	spinlock_t error_lock;
	u64 errors;
	unsigned int report;
};

/**
 * struct ata_domains - A controller. It is a resource of its device, found by its release function.
 * @dev: Its device.
 * @options: What its ports are like.
 * @controller: What its driver has said.
 * @ah: libata's host, while it is registered or being registered.
 * @group: The device's resources that end with @ah.
 * @ports: By number; without a domain where the controller has no such port.
 */
struct ata_domains {
	struct device *dev;
	const struct active_ata_options *options;
	struct active_ata_controller *controller;
	struct ata_host *ah;
	void *group;
	struct ata_domain ports[];
};

extern const struct active_role active_ata_role;
extern struct ata_port_operations active_ata_operations;

/* Fills in what ata.c needs of a port. */
void active_ata_init(struct ata_domain *port);

/* Asks the driver of a port, and waits for its answer. Context: May sleep. Return: The answer; errors are negative. */
long active_ata_ask(struct ata_domain *port, unsigned int box, void *pointer, long number);

#endif
