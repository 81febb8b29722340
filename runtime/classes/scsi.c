// SPDX-License-Identifier: GPL-2.0-or-later
/* Commands and devices of SCSI hosts: what calls do to rights beyond the fields of their structures. */
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_host.h>
#include <scsi/scsi_transport.h>
#include <scsi/scsi_transport_spi.h>

#include "border/custom.h"
#include "domain/entry.h"

/* A command is queued: the driver fills in the sense data, and its own part of the command. */
GUARDRAIL_CUSTOM(scsi_queue)
{
	struct scsi_cmnd *cmd = (struct scsi_cmnd *)object_of(action, call);
	unsigned int size;
	int err;

	if (!cmd)
		return 0;
	err = guardrail_grant_fresh(action->domain, (unsigned long)cmd->sense_buffer, SCSI_SENSE_BUFFERSIZE);
	size = cmd->device->host->hostt->cmd_size;
	if (!err && size)
		err = guardrail_grant_fresh(action->domain, (unsigned long)scsi_cmd_priv(cmd), size);
	return err;
}

static void scsi_gone(u32 domain, struct scsi_cmnd *cmd)
{
	guardrail_revoke(domain, (unsigned long)cmd->sense_buffer, SCSI_SENSE_BUFFERSIZE);
	guardrail_revoke(domain, (unsigned long)cmd, sizeof(*cmd) + cmd->device->host->hostt->cmd_size);
}

GUARDRAIL_CUSTOM(scsi_done)
{
	struct scsi_cmnd *cmd = (struct scsi_cmnd *)object_of(action, call);

	if (cmd)
		scsi_gone(action->domain, cmd);
	return 0;
}

/* A command that was not accepted stays the kernel's. One that was may be done already. */
GUARDRAIL_CUSTOM(scsi_queued)
{
	struct scsi_cmnd *cmd = (struct scsi_cmnd *)object_of(action, call);

	if (!cmd || !(int)call->result)
		return 0;
	/* The entry was ended when the command was done already: it must not be tried again. */
	if (was_ended(call) &&
	    !guardrail_check_object(action->domain, (unsigned long)cmd, GUARDRAIL_TYPE_SCSI_CMND))
		call->result = 0;
	else
		scsi_gone(action->domain, cmd);
	return 0;
}

/*
 * The driver's own error handler receives a host whose commands failed, and moves them from list to
 * list.
 */
GUARDRAIL_CUSTOM(scsi_eh)
{
	struct Scsi_Host *host = (struct Scsi_Host *)object_of(action, call);
	struct scsi_cmnd *cmd;
	unsigned long flags;
	int err = 0;

	if (!host)
		return 0;
	spin_lock_irqsave(host->host_lock, flags);
	list_for_each_entry(cmd, &host->eh_cmd_q, eh_entry)
		err = err ?: guardrail_grant(action->domain, (unsigned long)&cmd->eh_entry, sizeof(cmd->eh_entry));
	spin_unlock_irqrestore(host->host_lock, flags);
	return err;
}

/* The transport's data of a target, which a parallel SCSI driver fills in; NULL for other transports. */
static void *targets_data(const struct scsi_device *sdev)
{
	if (!sdev || !sdev->sdev_target || !sdev->host || !sdev->host->transportt ||
	    sdev->host->transportt->target_size != sizeof(struct spi_transport_attrs))
		return NULL;
	return sdev->sdev_target->starget_data;
}

GUARDRAIL_CUSTOM(scsi_device)
{
	void *data = targets_data((struct scsi_device *)object_of(action, call));

	return data ? guardrail_grant_fresh(action->domain, (unsigned long)data, sizeof(struct spi_transport_attrs)) : 0;
}

/* A device is freed, and its target with the last one. A lock of the host serializes that. */
GUARDRAIL_CUSTOM(scsi_device_gone)
{
	const struct scsi_device *sdev = (const struct scsi_device *)object_of(action, call);
	void *data = targets_data(sdev);

	if (data && list_is_singular(&sdev->sdev_target->devices))
		guardrail_revoke(action->domain, (unsigned long)data, sizeof(struct spi_transport_attrs));
	return 0;
}
