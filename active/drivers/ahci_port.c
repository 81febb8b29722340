// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An active driver of AHCI controllers, written from the Serial ATA AHCI 1.3.1 specification: a port.
 *
 * Each port is a domain of its own, which follows the protocols `sata` and `irq`. Ports share nothing but the register that
 * says which of them interrupts. So what is proved of a port holds for any number of them.
 */
#include "ahci.h"

/* What a port does. */
enum mode {
	STOPPED,
	FROZEN,
	IDLE,
	SINGLE,
	QUEUE,
	ABORTED,
	ASLEEP,
};

/* What an interrupt's bits say of errors, as libata wants it. */
static long errors_of(long bits)
{
	u32 mask = 0;

	if (bits & IRQ_TASK_FILE)
		mask |= AC_ERR_DEV;
	if (bits & (IRQ_DATA | IRQ_BUS))
		mask |= AC_ERR_HOST_BUS;
	if (bits & IRQ_INTERFACE)
		mask |= AC_ERR_ATA_BUS;
	if (bits & IRQ_UNKNOWN)
		mask |= AC_ERR_HSM;
	return ACTIVE_ATA_ERRORS(mask, (u64)bits >> 32);
}

/* An interrupt that says nothing of commands. */
static void pass_interrupt(struct active *a, struct ahci_port *p)
{
	irq_serviced_set_work(&p->reply, 0);
	EMIT(a, IRQ_SERVICED, &p->reply);
}

static void serviced(struct active *a, struct ahci_port *p)
{
	irq_serviced_set_work(&p->reply, 1);
	EMIT(a, IRQ_SERVICED, &p->reply);
}

/* An interrupt of a port that has no commands. */
static enum mode idle_interrupt(struct active *a, struct ahci_port *p)
{
	long bits = irq_raised_bits(a->message);

	pass_interrupt(a, p);
	if (!(bits & (IRQ_LINK | IRQ_FATAL)))
		return IDLE;
	sata_link_changed_set_status(&p->reply, errors_of(bits));
	EMIT(a, SATA_LINK_CHANGED, &p->reply);
	return ABORTED;
}

/* Reports a failure of a port that has commands. */
static enum mode fail(struct active *a, struct ahci_port *p, long bits)
{
	long errors = errors_of(bits);

	if (bits & IRQ_LINK) {
		sata_link_changed_set_status(&p->reply, errors);
		EMIT(a, SATA_LINK_CHANGED, &p->reply);
	} else if (bits & IRQ_FATAL) {
		sata_fatal_set_status(&p->reply, errors);
		EMIT(a, SATA_FATAL, &p->reply);
	} else {
		sata_failed_set_status(&p->reply, errors);
		EMIT(a, SATA_FAILED, &p->reply);
	}
	return ABORTED;
}

/* An interrupt of a port that has one command. */
static enum mode single_interrupt(struct active *a, struct ahci_port *p)
{
	long bits = irq_raised_bits(a->message);
	enum mode next = SINGLE;

	if (bits & IRQ_ERRORS) {
		next = fail(a, p, bits);
	} else if (!(ahci_get(p, ISSUED) & p->tags)) {
		EMIT(a, SATA_DONE);
		next = IDLE;
	}
	serviced(a, p);
	return next;
}

/* An interrupt of a port that has queued commands. */
static enum mode queued_interrupt(struct active *a, struct ahci_port *p)
{
	long bits = irq_raised_bits(a->message);
	u32 finished = p->tags & ~ahci_get(p, QUEUED_ACTIVE);
	enum mode next = QUEUE;

	p->tags &= ~finished;
	if (bits & IRQ_ERRORS) {
		next = fail(a, p, bits);
	} else if (!p->tags) {
		sata_drained_set_tags(&p->reply, finished);
		EMIT(a, SATA_DRAINED, &p->reply);
		next = IDLE;
	} else if (finished) {
		sata_completed_set_tags(&p->reply, finished);
		EMIT(a, SATA_COMPLETED, &p->reply);
	}
	serviced(a, p);
	return next;
}

static enum mode freeze(struct active *a, struct ahci_port *p)
{
	ahci_put(p, ENABLE, 0);
	p->tags = 0;
	EMIT(a, SATA_FROZEN);
	return FROZEN;
}

static enum mode thaw(struct active *a, struct ahci_port *p)
{
	ahci_put(p, STATUS, ahci_get(p, STATUS));
	writel(BIT(p->ata.index), ahci_of(p)->mmio + IS);
	ahci_put(p, ENABLE, p->interrupts);
	EMIT(a, SATA_THAWED);
	return IDLE;
}

/* The registers that libata knows by number. */
static unsigned int link_register(unsigned int index)
{
	switch (index) {
	case SCR_STATUS:
		return LINK_STATUS;
	case SCR_ERROR:
		return LINK_ERROR;
	case SCR_CONTROL:
		return LINK_CONTROL;
	case SCR_ACTIVE:
		return QUEUED_ACTIVE;
	default:
		return NOTIFICATION;
	}
}

static void read_register(struct active *a, struct ahci_port *p)
{
	unsigned int index = sata_read_register_index(a->message);

	sata_register_value_set_value(&p->reply, ahci_get(p, link_register(index)));
	EMIT(a, SATA_REGISTER_VALUE, &p->reply);
}

static void write_register(struct active *a, struct ahci_port *p)
{
	u64 message = sata_write_register_index_and_value(a->message);

	ahci_put(p, link_register(message >> 32), (u32)message);
	EMIT(a, SATA_REGISTER_WRITTEN);
}

static void end_reset(struct active *a, struct ahci_port *p, long result)
{
	if (result == AHCI_LINK_DOWN) {
		EMIT(a, SATA_LINK_DOWN);
	} else if (result < 0) {
		sata_reset_failed_set_error(&p->reply, result);
		EMIT(a, SATA_RESET_FAILED, &p->reply);
	} else {
		sata_reset_done_set_signature(&p->reply, result);
		EMIT(a, SATA_RESET_DONE, &p->reply);
	}
}

static void softreset(struct active *a, struct ahci_port *p)
{
	long result = ahci_reset_device(p, sata_softreset_deadline(a->message));

	if (result < 0) {
		sata_reset_failed_set_error(&p->reply, result);
		EMIT(a, SATA_RESET_FAILED, &p->reply);
	} else {
		sata_reset_done_set_signature(&p->reply, result);
		EMIT(a, SATA_RESET_DONE, &p->reply);
	}
}

/* Says whether the device takes packets, for the light of the drive. */
static void postreset(struct active *a, struct ahci_port *p)
{
	u32 command = ahci_get(p, COMMAND);

	if (sata_postreset_class(a->message) == ATA_DEV_ATAPI)
		command |= PACKET_DEVICE;
	else
		command &= ~PACKET_DEVICE;
	ahci_put(p, COMMAND, command);
	EMIT(a, SATA_POSTRESET_DONE);
}

/* Sets which power the link may save; then changes of the link are no news. */
static void manage_power(struct active *a, struct ahci_port *p, bool thawed)
{
	long policy = sata_manage_power_policy(a->message);
	u32 command = ahci_get(p, COMMAND) & ~(LINK_POWER | LINK_SLUMBER);

	if (policy == ATA_LPM_MAX_POWER)
		p->interrupts |= IRQ_PHY;
	else
		p->interrupts &= ~IRQ_PHY;
	if (thawed)
		ahci_put(p, ENABLE, p->interrupts);
	if (ahci_of(p)->capabilities & CAP_ALPM) {
		if (policy >= ATA_LPM_MIN_POWER_WITH_PARTIAL)
			command |= LINK_POWER | LINK_SLUMBER;
		ahci_put(p, COMMAND, command);
	}
	EMIT(a, SATA_POWER_MANAGED);
}

static enum mode restart(struct active *a, struct ahci_port *p, enum mode restarted, enum mode failed)
{
	int error = ahci_restart_engine(p);

	p->tags = 0;
	if (!error) {
		EMIT(a, SATA_RESTARTED);
		return restarted;
	}
	sata_restart_failed_set_error(&p->reply, error);
	EMIT(a, SATA_RESTART_FAILED, &p->reply);
	return failed;
}

static enum mode suspend(struct active *a, struct ahci_port *p)
{
	int error = ahci_power_down(p);

	if (!error) {
		EMIT(a, SATA_SUSPENDED);
		return ASLEEP;
	}
	ahci_power_up(p);
	sata_suspend_failed_set_error(&p->reply, error);
	EMIT(a, SATA_SUSPEND_FAILED, &p->reply);
	return FROZEN;
}

static enum mode stop(struct active *a, struct ahci_port *p)
{
	ahci_stop_port(p);
	EMIT(a, IRQ_DISABLE);
	EMIT(a, SATA_STOPPED);
	return STOPPED;
}

static enum mode serve_frozen(struct active *a, struct ahci_port *p)
{
	switch (AWAIT(a, IRQ_RAISED, SATA_FREEZE, SATA_THAW, SATA_SOFTRESET, SATA_HARDRESET, SATA_POSTRESET, SATA_RESTART,
		      SATA_READ_REGISTER, SATA_WRITE_REGISTER, SATA_MANAGE_POWER, SATA_SUSPEND, SATA_STOP)) {
	case IRQ_RAISED:
		pass_interrupt(a, p);
		return FROZEN;
	case SATA_FREEZE:
		return freeze(a, p);
	case SATA_THAW:
		return thaw(a, p);
	case SATA_SOFTRESET:
		softreset(a, p);
		return FROZEN;
	case SATA_HARDRESET:
		end_reset(a, p, ahci_reset_link(p, sata_hardreset_deadline(a->message)));
		return FROZEN;
	case SATA_POSTRESET:
		postreset(a, p);
		return FROZEN;
	case SATA_RESTART:
		return restart(a, p, FROZEN, FROZEN);
	case SATA_READ_REGISTER:
		read_register(a, p);
		return FROZEN;
	case SATA_WRITE_REGISTER:
		write_register(a, p);
		return FROZEN;
	case SATA_MANAGE_POWER:
		manage_power(a, p, false);
		return FROZEN;
	case SATA_SUSPEND:
		return suspend(a, p);
	default:
		return stop(a, p);
	}
}

static enum mode serve_idle(struct active *a, struct ahci_port *p)
{
	switch (AWAIT(a, IRQ_RAISED, SATA_ISSUE, SATA_ISSUE_PACKET, SATA_ISSUE_INTERNAL, SATA_ISSUE_QUEUED, SATA_FREEZE,
		      SATA_POSTRESET, SATA_RESTART, SATA_READ_REGISTER, SATA_WRITE_REGISTER, SATA_MANAGE_POWER)) {
	case IRQ_RAISED:
		return idle_interrupt(a, p);
	case SATA_ISSUE:
		ahci_issue_single(p, sata_issue_qc(a->message));
		return SINGLE;
	case SATA_ISSUE_PACKET:
		ahci_issue_single(p, sata_issue_packet_qc(a->message));
		return SINGLE;
	case SATA_ISSUE_INTERNAL:
		ahci_issue_single(p, sata_issue_internal_qc(a->message));
		return SINGLE;
	case SATA_ISSUE_QUEUED:
		ahci_issue_queued(p, sata_issue_queued_qc(a->message));
		return QUEUE;
	case SATA_FREEZE:
		return freeze(a, p);
	case SATA_POSTRESET:
		postreset(a, p);
		return IDLE;
	case SATA_RESTART:
		return restart(a, p, IDLE, ABORTED);
	case SATA_READ_REGISTER:
		read_register(a, p);
		return IDLE;
	case SATA_WRITE_REGISTER:
		write_register(a, p);
		return IDLE;
	default:
		manage_power(a, p, true);
		return IDLE;
	}
}

static enum mode serve_single(struct active *a, struct ahci_port *p)
{
	if (AWAIT(a, IRQ_RAISED, SATA_FREEZE) == SATA_FREEZE)
		return freeze(a, p);
	return single_interrupt(a, p);
}

static enum mode serve_queued(struct active *a, struct ahci_port *p)
{
	switch (AWAIT(a, IRQ_RAISED, SATA_ISSUE_QUEUED, SATA_FREEZE)) {
	case SATA_ISSUE_QUEUED:
		ahci_issue_queued(p, sata_issue_queued_qc(a->message));
		return QUEUE;
	case SATA_FREEZE:
		return freeze(a, p);
	default:
		return queued_interrupt(a, p);
	}
}

/* A failure has been reported. Commands that come now are the error handler's, like those that failed. */
static enum mode serve_aborted(struct active *a, struct ahci_port *p)
{
	switch (AWAIT(a, IRQ_RAISED, SATA_ISSUE, SATA_ISSUE_PACKET, SATA_ISSUE_INTERNAL, SATA_ISSUE_QUEUED, SATA_FREEZE,
		      SATA_POSTRESET, SATA_RESTART, SATA_READ_REGISTER, SATA_WRITE_REGISTER, SATA_MANAGE_POWER)) {
	case IRQ_RAISED:
		pass_interrupt(a, p);
		return ABORTED;
	case SATA_FREEZE:
		return freeze(a, p);
	case SATA_POSTRESET:
		postreset(a, p);
		return ABORTED;
	case SATA_RESTART:
		return restart(a, p, IDLE, ABORTED);
	case SATA_READ_REGISTER:
		read_register(a, p);
		return ABORTED;
	case SATA_WRITE_REGISTER:
		write_register(a, p);
		return ABORTED;
	case SATA_MANAGE_POWER:
		manage_power(a, p, true);
		return ABORTED;
	default:
		return ABORTED;
	}
}

/* The device may have no power: its registers are left alone. */
static enum mode serve_asleep(struct active *a, struct ahci_port *p)
{
	switch (AWAIT(a, IRQ_RAISED, SATA_RESUME, SATA_FREEZE, SATA_READ_REGISTER, SATA_WRITE_REGISTER, SATA_STOP)) {
	case IRQ_RAISED:
		pass_interrupt(a, p);
		return ASLEEP;
	case SATA_RESUME:
		ahci_power_up(p);
		EMIT(a, SATA_RESUMED);
		return FROZEN;
	case SATA_FREEZE:
		EMIT(a, SATA_FROZEN);
		return ASLEEP;
	case SATA_READ_REGISTER:
		sata_register_value_set_value(&p->reply, -EIO);
		EMIT(a, SATA_REGISTER_VALUE, &p->reply);
		return ASLEEP;
	case SATA_WRITE_REGISTER:
		EMIT(a, SATA_REGISTER_WRITTEN);
		return ASLEEP;
	default:
		return stop(a, p);
	}
}

static enum mode serve(struct active *a, struct ahci_port *p, enum mode mode)
{
	switch (mode) {
	case FROZEN:
		return serve_frozen(a, p);
	case IDLE:
		return serve_idle(a, p);
	case SINGLE:
		return serve_single(a, p);
	case QUEUE:
		return serve_queued(a, p);
	case ABORTED:
		return serve_aborted(a, p);
	default:
		return serve_asleep(a, p);
	}
}

/* A port, from its making to its end. It may be started and stopped several times. */
static void ahci_port_main(struct active *a)
{
	struct ahci_port *p = a->priv;
	enum mode mode;
	int error;

	while (AWAIT(a, SATA_START, SATA_CLOSE) == SATA_START) {
		error = ahci_start_port(p);
		if (error) {
			sata_start_failed_set_error(&p->reply, error);
			EMIT(a, SATA_START_FAILED, &p->reply);
			continue;
		}
		EMIT(a, IRQ_ENABLE);
		EMIT(a, SATA_STARTED);
		for (mode = FROZEN; mode != STOPPED;)
			mode = serve(a, p, mode);
	}
	EMIT(a, SATA_CLOSED);
}

ACTIVE_PROGRAM(ahci_port_main, "sata irq");

/* Acknowledges what the ports say. The errors of a link last until they are cleared. */
static long acknowledge(void __iomem *mmio)
{
	u32 status = readl(mmio + STATUS);
	u32 errors = 0;

	if (status & IRQ_ERRORS) {
		errors = readl(mmio + LINK_ERROR);
		writel(errors, mmio + LINK_ERROR);
	}
	writel(status, mmio + STATUS);
	return (long)((u64)errors << 32 | status);
}

static irqreturn_t top_half(int irq, void *data)
{
	struct ahci *h = data;
	u32 pending = readl(h->mmio + IS);
	u32 ports = pending & h->ata.ports;
	unsigned int i;

	/* Another device's interrupt, or the device is gone. */
	if (!ports || pending == ~0u)
		return IRQ_NONE;
	for (i = 0; i < h->ata.port_count; i++)
		if (ports & BIT(i))
			active_interrupt(h->ata.domains[i], acknowledge(h->mmio + PORTS + i * PORT_SIZE));
	writel(pending, h->mmio + IS);
	return IRQ_HANDLED;
}

static struct scsi_host_template sht = {
	ATA_NCQ_SHT("active_ahci"),
	.can_queue = SLOTS,
	.sg_tablesize = PIECES,
	.dma_boundary = 0xffffffff,
};

const struct active_ata_options ahci_options = {
	.main = ahci_port_main,
	.protocols = active_program_ahci_port_main,
	.port_size = sizeof(struct ahci_port),
	.sht = &sht,
	.top_half = top_half,
	.bar = 5,
	.port_base = PORTS,
	.port_distance = PORT_SIZE,
};
