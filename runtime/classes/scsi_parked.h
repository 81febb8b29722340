/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SCSI hosts that stay while their driver is unloaded and loaded anew. Hosts, the devices behind
 * them and all users of those do not belong to the driver. Meanwhile a template of this module
 * replaces the driver's, the devices are blocked, and commands wait. The new driver receives the
 * existing host when it asks for one.
 *
 * scsi_template.c has the templates, scsi_park.c takes hosts from a driver, scsi_return.c returns
 * them.
 */
#ifndef GUARDRAIL_CLASSES_SCSI_PARKED_H
#define GUARDRAIL_CLASSES_SCSI_PARKED_H

#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/static_call.h>
#include <scsi/scsi.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_host.h>
#include <scsi/scsi_transport.h>
#include <scsi/scsi_transport_spi.h>

#include "domain/module.h"

/* More uses than a driver ever has. */
#define GUARDRAIL_STAND_IN_USES (1 << 20)

/* Functions of scsi_mod, which may be loaded after this module. guardrail_scsi_find() sets them. */
DECLARE_STATIC_CALL(guardrail_scsi_block, scsi_host_block);
DECLARE_STATIC_CALL(guardrail_scsi_unblock, scsi_host_unblock);
DECLARE_STATIC_CALL(guardrail_scsi_done, scsi_done);
DECLARE_STATIC_CALL(guardrail_scsi_unmap, scsi_dma_unmap);
DECLARE_STATIC_CALL(guardrail_scsi_next, __scsi_iterate_devices);
DECLARE_STATIC_CALL(guardrail_scsi_remove, scsi_remove_host);

/**
 * struct guardrail_stand_in - Replaces a driver's template, and counts the users of the driver.
 * @list: Place in the list of stand-ins.
 * @driver: The template that it replaces.
 * @hosts: Hosts that have it; 0 where it is free.
 * @template: The template.
 * @module: The module of the template, by which the kernel counts each use of a device.
 * @name: Name for the template.
 * @proc_name: Name of its folder in /proc/scsi.
 *
 * A stand-in is used again, and only freed with this module, since another thread may be about to
 * drop a use of one.
 */
struct guardrail_stand_in {
	struct list_head list;
	const struct scsi_host_template *driver;
	unsigned int hosts;
	struct scsi_host_template template;
	struct module module;
	char name[64], proc_name[32];
};

/**
 * enum guardrail_parked_state - How far a parked host is on its way to a driver.
 * @PARKED_WAITING: No driver has it.
 * @PARKED_OFFERED: A driver asked for a host and got it.
 * @PARKED_ADDED: That driver registered it.
 */
enum guardrail_parked_state { PARKED_WAITING, PARKED_OFFERED, PARKED_ADDED };

/**
 * struct guardrail_parked - A host without a driver.
 * @list: Place in the list of parked hosts.
 * @domain: Domain of the driver.
 * @state: How far it is on its way to a driver.
 * @host: The host.
 * @stand_in: What replaces its template.
 * @coming: Template of the driver that received the host; NULL while it waits.
 * @transport: Its transport.
 * @functions: Where the transport keeps the driver's functions; NULL unless it is parallel SCSI.
 * @used: Modules that stay as long.
 * @size: Bytes of the driver's part.
 * @can_queue: Commands at a time.
 * @nr_hw_queues: Hardware queues.
 * @offline: Commands fail instead of waiting.
 * @leaves: Why it does not wait for a driver but is removed; NULL where it waits.
 */
struct guardrail_parked {
	struct list_head list;
	u32 domain;
	enum guardrail_parked_state state;
	struct Scsi_Host *host;
	struct guardrail_stand_in *stand_in;
	const struct scsi_host_template *coming;
	struct scsi_transport_template *transport;
	struct spi_function_template **functions;
	struct module *used[2];
	unsigned long size;
	int can_queue;
	unsigned int nr_hw_queues;
	bool offline;
	const char *leaves;
};

/* All parked hosts. */
extern struct list_head guardrail_parked_hosts;
/*
 * Protects guardrail_parked_hosts, its members and the stand-ins. Taken in process context, also inside teardown_lock of
 * recovery/recover.c. The locks of the SCSI layer and of the rights room nest inside.
 */
extern struct mutex guardrail_parked_lock;
/* Replaces the functions of a parallel SCSI driver. */
extern struct spi_function_template guardrail_no_functions;

/**
 * guardrail_scsi_find() - Find the functions of scsi_mod.
 *
 * Context: Process.
 * Return: False where one is missing.
 */
bool guardrail_scsi_find(void);

/**
 * guardrail_scsi_remove_file() - Remove the file of a host in /proc/scsi.
 * @host: The host, with its driver's template.
 *
 * Context: Process.
 */
void guardrail_scsi_remove_file(struct Scsi_Host *host);

/**
 * guardrail_scsi_make_file() - Make the file of a host in /proc/scsi.
 * @host: The host, with its driver's template.
 *
 * Context: Process.
 */
void guardrail_scsi_make_file(struct Scsi_Host *host);

/**
 * guardrail_scsi_gone() - A queuecommand that fails each command, for hosts that get no driver any more.
 * @host: The host.
 * @cmd: The command.
 *
 * Context: That of queuecommand.
 * Return: 0.
 */
typeof(((struct scsi_host_template *)NULL)->queuecommand(NULL, NULL)) guardrail_scsi_gone(struct Scsi_Host *host,
											   struct scsi_cmnd *cmd);

/**
 * guardrail_stand_in_for() - Find or make the stand-in for a template.
 * @driver: The template.
 *
 * Context: Process, with guardrail_parked_lock held.
 * Return: The stand-in, or NULL without memory.
 */
struct guardrail_stand_in *guardrail_stand_in_for(const struct scsi_host_template *driver);

/**
 * guardrail_stand_ins_exit() - Free all stand-ins.
 */
void guardrail_stand_ins_exit(void);

/**
 * guardrail_move_uses() - Move the uses that the kernel has counted for one module to another.
 * @from: Module that loses them.
 * @none: Its count without uses.
 * @to: Module that gets them. Uses of @from that were dropped too late were counted for it already.
 *
 * Context: Process.
 */
void guardrail_move_uses(struct module *from, int none, struct module *to);

/**
 * guardrail_find_parked() - Find a parked host.
 * @host: The host.
 *
 * Context: Process, with guardrail_parked_lock held.
 * Return: What is known of it, or NULL.
 */
struct guardrail_parked *guardrail_find_parked(const struct Scsi_Host *host);

/**
 * guardrail_parked_fail() - Make commands of a parked host fail from now on.
 * @parked: The host.
 *
 * Context: Process, with guardrail_parked_lock held.
 */
void guardrail_parked_fail(struct guardrail_parked *parked);

/**
 * guardrail_parked_wait() - Let a parked host wait again, whose new driver did not take it.
 * @parked: The host.
 *
 * Context: Process, with guardrail_parked_lock held.
 */
void guardrail_parked_wait(struct guardrail_parked *parked);

#endif /* GUARDRAIL_CLASSES_SCSI_PARKED_H */
