// SPDX-License-Identifier: GPL-2.0-or-later
/* ATA hosts: fields of libata's structures that a driver of a host writes while the host exists. */
#include <linux/libata.h>
#include <linux/pci.h>

#include "border/custom.h"

#define FIELD(type, member) { offsetof(type, member), sizeof_field(type, member) }

static const struct guardrail_field host_fields[] = {
	FIELD(struct ata_host, private_data), FIELD(struct ata_host, flags),
};

static const struct guardrail_field port_fields[] = {
	FIELD(struct ata_port, ops), FIELD(struct ata_port, flags), FIELD(struct ata_port, pflags),
	FIELD(struct ata_port, private_data), FIELD(struct ata_port, em_message_type),
	FIELD(struct ata_port, target_lpm_policy),
};

/* Inlined functions write these, for the error handler of a link. */
static const struct guardrail_field link_fields[] = {
	FIELD(struct ata_link, flags), FIELD(struct ata_link, eh_info.serror), FIELD(struct ata_link, eh_info.err_mask),
	FIELD(struct ata_link, eh_info.action), FIELD(struct ata_link, eh_info.dev_action),
	FIELD(struct ata_link, eh_info.probe_mask), FIELD(struct ata_link, eh_info.flags),
};

static const struct guardrail_field device_fields[] = {
	FIELD(struct ata_device, flags), FIELD(struct ata_device, max_sectors),
};

static const struct guardrail_field command_fields[] = {
	FIELD(struct ata_queued_cmd, flags), FIELD(struct ata_queued_cmd, err_mask), FIELD(struct ata_queued_cmd, result_tf),
};

#define FIELDS(domain, pointer, fields) \
	guardrail_grant_fields(domain, (unsigned long)(pointer), fields, ARRAY_SIZE(fields))

static int link_new(u32 domain, struct ata_link *link)
{
	int i, err = FIELDS(domain, link, link_fields);

	for (i = 0; i < ATA_MAX_DEVICES; i++)
		err = err ?: FIELDS(domain, &link->device[i], device_fields);
	return err;
}

static int port_new(u32 domain, struct ata_port *ap)
{
	int i, err = FIELDS(domain, ap, port_fields);

	err = err ?: link_new(domain, &ap->link);
	for (i = 0; i < ARRAY_SIZE(ap->qcmd); i++)
		err = err ?: FIELDS(domain, &ap->qcmd[i], command_fields);
	return err;
}

/**
 * struct host - A host that libata frees together with its device.
 * @host: The host.
 * @domain: Domain of its driver.
 */
struct host {
	struct ata_host *host;
	u32 domain;
};

/* libata frees the host after this. */
static void host_gone(void *data)
{
	struct host *gone = data;
	int i;

	for (i = 0; i < gone->host->n_ports; i++)
		if (gone->host->ports[i])
			guardrail_revoke(gone->domain, (unsigned long)gone->host->ports[i], sizeof(struct ata_port));
	guardrail_revoke(gone->domain, (unsigned long)gone->host, sizeof(*gone->host));
	kfree(gone);
}

/* ata_host_alloc_pinfo(): the result is the host, with its ports. */
GUARDRAIL_CUSTOM(ata_host_new)
{
	struct ata_host *host = (struct ata_host *)object_of(action, call);
	struct host *gone;
	int i, err;

	/* Where libata is in the domain as well all of this is its own memory. */
	if (!host || guardrail_check_write(action->domain, (unsigned long)host, sizeof(*host)))
		return 0;
	err = FIELDS(action->domain, host, host_fields);
	for (i = 0; i < host->n_ports; i++)
		if (host->ports[i])
			err = err ?: port_new(action->domain, host->ports[i]);
	if (err)
		return err;
	gone = kmalloc(sizeof(*gone), GFP_KERNEL);
	if (!gone)
		return -ENOMEM;
	*gone = (struct host){ .host = host, .domain = action->domain };
	return devm_add_action_or_reset(host->dev, host_gone, gone);
}

/* A port multiplier adds links. */
GUARDRAIL_CUSTOM(ata_pmp_new)
{
	struct ata_port *ap = (struct ata_port *)object_of(action, call);
	int i, err = 0;

	if (!ap || !ap->pmp_link || guardrail_check_write(action->domain, (unsigned long)ap, sizeof(*ap)))
		return 0;
	for (i = 0; i < ap->nr_pmp_links; i++)
		err = err ?: link_new(action->domain, &ap->pmp_link[i]);
	return err;
}

/* The links are freed when the port loses the multiplier. */
GUARDRAIL_CUSTOM(ata_pmp_gone)
{
	struct ata_port *ap = (struct ata_port *)object_of(action, call);

	if (ap && ap->pmp_link && !guardrail_check_write(action->domain, (unsigned long)ap, sizeof(*ap)))
		guardrail_revoke(action->domain, (unsigned long)ap->pmp_link, ap->nr_pmp_links * sizeof(*ap->pmp_link));
	return 0;
}
