// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libata's calls of a low-level driver as messages of the protocol `sata`.
 *
 * Locks: libata holds the port's lock while it issues a command, freezes or thaws a port, and the driver often runs
 * in that call. So a port remembers which CPU sends under its lock, and what the driver completes there needs no lock. Failures
 * are reported to libata from a work item, since libata must not see a command fail while it is being issued.
 */
#include <linux/version.h>

#include "ata_host.h"

/* What an answer says beside register values, signatures and errors. */
#define LINK_DOWN (1L << 40)

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define QC_FAILED ATA_QCFLAG_FAILED
#else
#define QC_FAILED ATA_QCFLAG_EH
#endif

/* Sends under the port's lock, which the caller holds. */
static bool send_locked(struct ata_domain *port, struct active_message *m)
{
	int before = port->holder;
	bool sent;

	WRITE_ONCE(port->holder, smp_processor_id());
	sent = active_send(port->domain, m);
	WRITE_ONCE(port->holder, before);
	return sent;
}

/* Takes the port's lock where the sender that the driver runs in does not hold it. */
static bool lock_port(struct ata_domain *port, unsigned long *flags)
{
	local_irq_save(*flags);
	if (READ_ONCE(port->holder) == smp_processor_id())
		return false;
	spin_lock(&port->lock);
	return true;
}

static void unlock_port(struct ata_domain *port, bool locked, unsigned long flags)
{
	if (locked)
		spin_unlock(&port->lock);
	local_irq_restore(flags);
}

/* Completes commands whose hardware tags are among @tags. */
static void complete_tags(struct ata_domain *port, u64 tags)
{
	unsigned long flags;
	bool locked = lock_port(port, &flags);

	ata_qc_complete_multiple(port->ap, ata_qc_get_active(port->ap) & ~tags);
	unlock_port(port, locked, flags);
}

static void report_failure(struct ata_domain *port, unsigned int box, u64 errors)
{
	unsigned long flags;

	spin_lock_irqsave(&port->error_lock, flags);
	port->errors |= errors;
	if (!port->report || box == SATA_LINK_CHANGED || (box == SATA_FATAL && port->report == SATA_FAILED))
		port->report = box;
	spin_unlock_irqrestore(&port->error_lock, flags);
	queue_work(system_highpri_wq, &port->failing);
}

static void failing(struct work_struct *work)
{
	struct ata_domain *port = container_of(work, struct ata_domain, failing);
	struct ata_port *ap = port->ap;
	struct ata_eh_info *ehi = &ap->link.eh_info;
	struct ata_queued_cmd *qc;
	unsigned long flags;
	unsigned int report;
	u64 errors;

	spin_lock_irqsave(&port->lock, flags);
	spin_lock(&port->error_lock);
	errors = port->errors;
	report = port->report;
	port->errors = 0;
	port->report = 0;
	spin_unlock(&port->error_lock);
	ata_ehi_clear_desc(ehi);
	ata_ehi_push_desc(ehi, "errors 0x%llx", errors);
	ehi->serror |= errors >> 32;
	qc = ata_qc_from_tag(ap, ap->link.active_tag);
	if (qc)
		qc->err_mask |= (u32)errors;
	else
		ehi->err_mask |= (u32)errors;
	if (report == SATA_LINK_CHANGED)
		ata_ehi_hotplugged(ehi);
	if (report == SATA_FATAL)
		ehi->action |= ATA_EH_RESET;
	if (report == SATA_FAILED)
		ata_port_abort(ap);
	else if (report)
		ata_port_freeze(ap);
	spin_unlock_irqrestore(&port->lock, flags);
}

/* Driver to kernel. Context: any, with the port's lock held if the driver runs in a sender that holds it. */
static void emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct ata_domain *port = data;

	switch (box) {
	case SATA_DONE:
		complete_tags(port, ~0ULL);
		break;
	case SATA_COMPLETED:
	case SATA_DRAINED:
		complete_tags(port, (u64)m->number);
		break;
	case SATA_FAILED:
	case SATA_FATAL:
	case SATA_LINK_CHANGED:
		report_failure(port, box, (u64)m->number);
		break;
	case SATA_FROZEN:
		clear_bit_unlock(0, &port->freezing);
		break;
	case SATA_THAWED:
		clear_bit_unlock(0, &port->thawing);
		break;
	case SATA_LINK_DOWN:
		active_answer(&port->request, LINK_DOWN);
		break;
	default:
		/* Values and errors; NULL where there is nothing to say. */
		active_answer(&port->request, m ? m->number : 0);
	}
}

const struct active_role active_ata_role = {
	.protocol = ACTIVE_SATA,
	.emitted = emitted,
};

static struct ata_domain *port_of(struct ata_port *ap)
{
	return ap->private_data;
}

/* Asks the driver and waits for its answer. Context: may sleep. */
long active_ata_ask(struct ata_domain *port, unsigned int box, void *pointer, long number)
{
	long answer = -ENODEV;

	mutex_lock(&port->asking);
	if (!port->stopped || box == SATA_START || box == SATA_CLOSE)
		answer = active_ask(port->domain, &port->request, box, pointer, number);
	if (box == SATA_START)
		port->stopped = answer != 0;
	if (box == SATA_STOP)
		port->stopped = true;
	mutex_unlock(&port->asking);
	return answer;
}

/* Errors are negative, everything else is 32 bits of a value. */
static bool failed(long answer)
{
	return answer < 0;
}

static unsigned int issue_box(struct ata_queued_cmd *qc)
{
	if (ata_tag_internal(qc->tag))
		return SATA_ISSUE_INTERNAL;
	if (ata_is_atapi(qc->tf.protocol))
		return SATA_ISSUE_PACKET;
	return ata_is_ncq(qc->tf.protocol) ? SATA_ISSUE_QUEUED : SATA_ISSUE;
}

/* The driver prepares a command when it issues it. */
static enum ata_completion_errors op_prepare(struct ata_queued_cmd *qc)
{
	return AC_ERR_OK;
}

/* Context: the port's lock is held. */
static unsigned int op_issue(struct ata_queued_cmd *qc)
{
	struct ata_domain *port = port_of(qc->ap);
	struct active_message *m = &port->commands[qc->tag];

	m->box = issue_box(qc);
	m->pointer = qc;
	return send_locked(port, m) ? 0 : AC_ERR_SYSTEM;
}

/* Context: the port's lock is held. */
static void fill_result(struct ata_queued_cmd *qc)
{
	const struct active_ata_port *shared = port_of(qc->ap)->shared;

	/* The last register FIS is from before a read by PIO, whose setup FIS has the status that it ends with. */
	if (qc->tf.protocol == ATA_PROT_PIO && qc->dma_dir == DMA_FROM_DEVICE && !(qc->flags & QC_FAILED)) {
		ata_tf_from_fis(shared->pio_fis, &qc->result_tf);
		qc->result_tf.status = shared->pio_fis[15];
		return;
	}
	ata_tf_from_fis(shared->device_fis, &qc->result_tf);
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
static bool op_fill_result(struct ata_queued_cmd *qc)
{
	fill_result(qc);
	return true;
}
#else
static void op_fill_result(struct ata_queued_cmd *qc)
{
	fill_result(qc);
}
#endif

/* Context: the port's lock is held. */
static void op_freeze(struct ata_port *ap)
{
	struct ata_domain *port = port_of(ap);

	if (test_and_set_bit_lock(0, &port->freezing))
		return;
	port->freeze.box = SATA_FREEZE;
	if (!send_locked(port, &port->freeze))
		clear_bit_unlock(0, &port->freezing);
}

/* Context: the port's lock is held. */
static void op_thaw(struct ata_port *ap)
{
	struct ata_domain *port = port_of(ap);

	if (test_and_set_bit_lock(0, &port->thawing))
		return;
	port->thaw.box = SATA_THAW;
	if (!send_locked(port, &port->thaw))
		clear_bit_unlock(0, &port->thawing);
}

static int reset(struct ata_link *link, unsigned int box, unsigned int *class, unsigned long deadline)
{
	struct ata_taskfile tf = {};
	long answer;

	/* A lower speed after errors takes effect by a reset. */
	if (box == SATA_HARDRESET)
		sata_set_spd(link);
	answer = active_ata_ask(port_of(link->ap), box, NULL, (long)deadline);
	if (failed(answer))
		return (int)answer;
	*class = ATA_DEV_NONE;
	if (answer == LINK_DOWN)
		return 0;
	tf.lbah = answer >> 24;
	tf.lbam = answer >> 16;
	tf.lbal = answer >> 8;
	tf.nsect = answer;
	*class = ata_port_classify(link->ap, &tf);
	return 0;
}

static int op_softreset(struct ata_link *link, unsigned int *class, unsigned long deadline)
{
	return reset(link, SATA_SOFTRESET, class, deadline);
}

static int op_hardreset(struct ata_link *link, unsigned int *class, unsigned long deadline)
{
	return reset(link, SATA_HARDRESET, class, deadline);
}

static void op_postreset(struct ata_link *link, unsigned int *classes)
{
	ata_std_postreset(link, classes);
	active_ata_ask(port_of(link->ap), SATA_POSTRESET, NULL, classes[0]);
}

static bool is_frozen(struct ata_port *ap)
{
	return READ_ONCE(ap->pflags) & ATA_PFLAG_FROZEN;
}

static void op_error_handler(struct ata_port *ap)
{
	struct ata_domain *port = port_of(ap);
	unsigned long flags;

	/* A frozen port is going to be reset. */
	if (!is_frozen(ap) && active_ata_ask(port, SATA_RESTART, NULL, 0)) {
		spin_lock_irqsave(&port->lock, flags);
		ata_port_freeze(ap);
		spin_unlock_irqrestore(&port->lock, flags);
	}
	ata_std_error_handler(ap);
}

static void op_post_internal(struct ata_queued_cmd *qc)
{
	if (qc->flags & QC_FAILED)
		active_ata_ask(port_of(qc->ap), SATA_RESTART, NULL, 0);
}

static int op_read(struct ata_link *link, unsigned int index, u32 *value)
{
	long answer;

	if (index > SCR_NOTIFICATION)
		return -EINVAL;
	answer = active_ata_ask(port_of(link->ap), SATA_READ_REGISTER, NULL, index);
	if (failed(answer))
		return (int)answer;
	*value = (u32)answer;
	return 0;
}

static int op_write(struct ata_link *link, unsigned int index, u32 value)
{
	if (index > SCR_NOTIFICATION)
		return -EINVAL;
	return (int)active_ata_ask(port_of(link->ap), SATA_WRITE_REGISTER, NULL, (long)((u64)index << 32 | value));
}

static int op_power(struct ata_link *link, enum ata_lpm_policy policy, unsigned int hints)
{
	bool full = policy == ATA_LPM_MAX_POWER;
	int error = 0;

	/* Changes of the link are reported only at full power: off before the link changes, on after it. */
	if (full)
		error = sata_link_scr_lpm(link, policy, false);
	if (!error)
		error = (int)active_ata_ask(port_of(link->ap), SATA_MANAGE_POWER, NULL, policy);
	if (!full && !error)
		error = sata_link_scr_lpm(link, policy, false);
	return error;
}

static int op_suspend(struct ata_port *ap, pm_message_t event)
{
	return (int)active_ata_ask(port_of(ap), SATA_SUSPEND, NULL, event.event);
}

static int op_resume(struct ata_port *ap)
{
	return (int)active_ata_ask(port_of(ap), SATA_RESUME, NULL, 0);
}

static int op_start(struct ata_port *ap)
{
	struct ata_domains *host = ap->host->private_data;
	struct ata_domain *port = &host->ports[ap->port_no];

	ap->private_data = port;
	ap->lock = &port->lock;
	port->ap = ap;
	port->shared->ap = ap;
	return (int)active_ata_ask(port, SATA_START, ap, 0);
}

static void op_stop(struct ata_port *ap)
{
	struct ata_domain *port = port_of(ap);

	active_ata_ask(port, SATA_STOP, NULL, 0);
	cancel_work_sync(&port->failing);
}

struct ata_port_operations active_ata_operations = {
	.inherits = &sata_port_ops,
	.qc_prep = op_prepare,
	.qc_issue = op_issue,
	.qc_fill_rtf = op_fill_result,
	.freeze = op_freeze,
	.thaw = op_thaw,
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
	.softreset = op_softreset,
	.hardreset = op_hardreset,
	.postreset = op_postreset,
#else
	.reset.softreset = op_softreset,
	.reset.hardreset = op_hardreset,
	.reset.postreset = op_postreset,
#endif
	.error_handler = op_error_handler,
	.post_internal_cmd = op_post_internal,
	.scr_read = op_read,
	.scr_write = op_write,
	.set_lpm = op_power,
	.port_suspend = op_suspend,
	.port_resume = op_resume,
	.port_start = op_start,
	.port_stop = op_stop,
};

void active_ata_init(struct ata_domain *port)
{
	spin_lock_init(&port->lock);
	spin_lock_init(&port->error_lock);
	mutex_init(&port->asking);
	INIT_WORK(&port->failing, failing);
	active_request_init(&port->request);
	port->holder = ACTIVE_ATA_NOBODY;
	port->stopped = true;
}
