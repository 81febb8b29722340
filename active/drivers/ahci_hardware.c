// SPDX-License-Identifier: GPL-2.0-or-later
/* What a port of an AHCI controller does: its engine, resets and commands. Numbers are sections of AHCI 1.3.1. */
#include <linux/delay.h>
#include <linux/dma-mapping.h>

#include "ahci.h"

/* Waits until @bits of a register are clear. Context: may sleep. */
static bool clears(struct ahci_port *p, unsigned int reg, u32 bits, unsigned int milliseconds)
{
	unsigned int i;

	for (i = 0; i < milliseconds * 2; i++) {
		if (!(ahci_get(p, reg) & bits))
			return true;
		usleep_range(500, 700);
	}
	return !(ahci_get(p, reg) & bits);
}

/* The engine runs no more commands (10.1.2, 10.3.2). */
static int stop_engine(struct ahci_port *p)
{
	u32 command = ahci_get(p, COMMAND);

	if (command == ~0u)
		return -ENODEV;
	if (!(command & (START | RUNNING)))
		return 0;
	ahci_put(p, COMMAND, command & ~START);
	return clears(p, COMMAND, RUNNING, 500) ? 0 : -EIO;
}

static void start_engine(struct ahci_port *p)
{
	ahci_put(p, COMMAND, ahci_get(p, COMMAND) | START);
	ahci_get(p, COMMAND);
}

/* A device that is busy for ever is not waited for, where the controller can do so (3.3.7). */
static void override_busy(struct ahci_port *p)
{
	if (!(ahci_get(p, TASK_FILE) & (ATA_BUSY | ATA_DRQ)) || !(ahci_of(p)->capabilities & CAP_CLO))
		return;
	ahci_put(p, COMMAND, ahci_get(p, COMMAND) | OVERRIDE);
	clears(p, COMMAND, OVERRIDE, 500);
}

int ahci_restart_engine(struct ahci_port *p)
{
	int error = stop_engine(p);

	if (error)
		return error;
	override_busy(p);
	start_engine(p);
	return 0;
}

/* Says where the port's memory is, powers the device and receives what it sends (10.1.2). */
void ahci_power_up(struct ahci_port *p)
{
	u64 list = p->address + offsetof(struct port_memory, headers);
	u64 fis = p->address + offsetof(struct port_memory, received);

	ahci_put(p, ENABLE, 0);
	ahci_put(p, LIST, lower_32_bits(list));
	ahci_put(p, LIST + 4, upper_32_bits(list));
	ahci_put(p, FIS, lower_32_bits(fis));
	ahci_put(p, FIS + 4, upper_32_bits(fis));
	ahci_put(p, LINK_ERROR, ahci_get(p, LINK_ERROR));
	ahci_put(p, STATUS, ahci_get(p, STATUS));
	ahci_put(p, COMMAND, ahci_get(p, COMMAND) | SPIN_UP | POWER_ON | LINK_ACTIVE | RECEIVE);
	ahci_get(p, COMMAND);
}

/* The port touches its memory no more. */
int ahci_power_down(struct ahci_port *p)
{
	int error = stop_engine(p);

	ahci_put(p, ENABLE, 0);
	if (error)
		return error;
	ahci_put(p, COMMAND, ahci_get(p, COMMAND) & ~RECEIVE);
	return clears(p, COMMAND, RECEIVING, 500) ? 0 : -EIO;
}

int ahci_start_port(struct ahci_port *p)
{
	struct ahci *h = ahci_of(p);
	int error;

	p->mmio = h->mmio + PORTS + p->ata.index * PORT_SIZE;
	p->memory = dma_alloc_coherent(&h->pdev->dev, sizeof(*p->memory), &p->address, GFP_KERNEL);
	if (!p->memory)
		return -ENOMEM;
	error = ahci_power_down(p);
	if (error) {
		dma_free_coherent(&h->pdev->dev, sizeof(*p->memory), p->memory, p->address);
		return error;
	}
	p->interrupts = IRQ_ALL;
	p->ata.device_fis = p->memory->received.device;
	p->ata.pio_fis = p->memory->received.pio_setup;
	ahci_power_up(p);
	return 0;
}

void ahci_stop_port(struct ahci_port *p)
{
	struct ahci *h = ahci_of(p);

	ahci_power_down(p);
	dma_free_coherent(&h->pdev->dev, sizeof(*p->memory), p->memory, p->address);
	p->memory = NULL;
}

/* Waits until the device has sent its signature. */
static long wait_for_device(struct ahci_port *p, unsigned long deadline)
{
	unsigned int i;
	u32 status;

	/* Less than the deadline of an answer. */
	for (i = 0; i < 1200; i++) {
		status = ahci_get(p, TASK_FILE);
		if (status == ~0u)
			return -ENODEV;
		if (!(status & ATA_BUSY)) {
			start_engine(p);
			return ahci_get(p, SIGNATURE);
		}
		if (time_after(jiffies, deadline))
			return -EBUSY;
		usleep_range(5000, 8000);
	}
	return -EBUSY;
}

/* A reset of the link and of the device (10.4.2). */
long ahci_reset_link(struct ahci_port *p, unsigned long deadline)
{
	u32 control = (ahci_get(p, LINK_CONTROL) & 0xf0) | LINK_NO_SAVING;
	unsigned int i;
	u32 link;

	stop_engine(p);
	ahci_put(p, LINK_CONTROL, control | 1);
	ahci_get(p, LINK_CONTROL);
	usleep_range(1000, 2000);
	ahci_put(p, LINK_CONTROL, control);
	for (i = 0; i < 400; i++) {
		link = ahci_get(p, LINK_STATUS) & 0xf;
		/* A device answers within 10 ms, or later if it says that it is there. */
		if (link == 3 || link == 0xf || (!link && i >= 20))
			break;
		usleep_range(5000, 6000);
	}
	ahci_put(p, LINK_ERROR, ahci_get(p, LINK_ERROR));
	if (link == 0xf)
		return -ENODEV;
	if (link != 3)
		return AHCI_LINK_DOWN;
	return wait_for_device(p, deadline);
}

static void write_header(struct ahci_port *p, unsigned int slot, u32 options)
{
	struct header *header = &p->memory->headers[slot];
	u64 table = p->address + offsetof(struct port_memory, tables) + slot * sizeof(struct table);

	header->options = cpu_to_le32(options);
	header->transferred = 0;
	header->table = cpu_to_le64(table);
}

/* Sends a FIS that resets the device, or ends that. */
static bool send_control(struct ahci_port *p, u8 control, u32 options)
{
	struct ata_taskfile tf = { .ctl = control };

	ata_tf_to_fis(&tf, 0, 0, p->memory->tables[0].fis);
	write_header(p, 0, HEADER_WORDS | options);
	ahci_put(p, ISSUED, 1);
	return clears(p, ISSUED, 1, 1000);
}

/* A reset of the device (10.4.1). */
long ahci_reset_device(struct ahci_port *p, unsigned long deadline)
{
	int error = ahci_restart_engine(p);

	if (error)
		return error;
	if (!send_control(p, ATA_SRST | ATA_DEVCTL_OBS, HEADER_RESET | HEADER_CLEAR))
		return -EIO;
	usleep_range(10, 50);
	if (!send_control(p, ATA_DEVCTL_OBS, 0))
		return -EIO;
	return wait_for_device(p, deadline);
}

/* Writes a command into its slot. */
static void write_command(struct ahci_port *p, struct ata_queued_cmd *qc)
{
	struct table *table = &p->memory->tables[qc->hw_tag];
	u32 options = HEADER_WORDS;
	struct scatterlist *sg = qc->sg;
	unsigned int count = qc->flags & ATA_QCFLAG_DMAMAP ? min_t(unsigned int, qc->n_elem, PIECES) : 0;
	unsigned int i;

	ata_tf_to_fis(&qc->tf, 0, 1, table->fis);
	if (ata_is_atapi(qc->tf.protocol)) {
		memset(table->packet, 0, 32);
		memcpy(table->packet, qc->cdb, qc->dev->cdb_len);
		options |= HEADER_PACKET | HEADER_PREFETCH;
	}
	if (qc->tf.flags & ATA_TFLAG_WRITE)
		options |= HEADER_WRITE;
	for (i = 0; i < count; i++) {
		table->pieces[i].address = cpu_to_le64(sg_dma_address(sg));
		table->pieces[i].reserved = 0;
		table->pieces[i].bytes = cpu_to_le32(sg_dma_len(sg) - 1);
		sg = sg_next(sg);
	}
	write_header(p, qc->hw_tag, options | count << 16);
}

void ahci_issue_single(struct ahci_port *p, struct ata_queued_cmd *qc)
{
	write_command(p, qc);
	p->tags = BIT(qc->hw_tag);
	ahci_put(p, ISSUED, p->tags);
}

void ahci_issue_queued(struct ahci_port *p, struct ata_queued_cmd *qc)
{
	u32 tag = BIT(qc->hw_tag);

	write_command(p, qc);
	p->tags |= tag;
	ahci_put(p, QUEUED_ACTIVE, tag);
	ahci_put(p, ISSUED, tag);
}
