// SPDX-License-Identifier: GPL-2.0-or-later
/* Takes SCSI hosts from a dead driver; scsi_parked.h describes it. */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "base/grace.h"
#include "base/symbols.h"
#include "classes/classes.h"
#include "classes/scsi_parked.h"
#include "recovery/class.h"
#include "rights/kinds.h"

/* How long to wait for hosts that a driver sets up after its init function has returned. */
#define SETTLE_MS 10000

LIST_HEAD(guardrail_parked_hosts);
DEFINE_MUTEX(guardrail_parked_lock);

/* A transport of parallel SCSI keeps the driver's functions behind its public part. */
static struct spi_function_template **spi_functions_of(const struct scsi_transport_template *transport)
{
	return (struct spi_function_template **)(transport + 1);
}

static bool is_parallel(const struct scsi_transport_template *transport)
{
	return transport->host_size == sizeof(struct spi_host_attrs) &&
	       transport->target_size == sizeof(struct spi_transport_attrs) && !transport->device_size;
}

static bool is_blank(const struct scsi_transport_template *transport)
{
	return !transport->host_size && !transport->target_size && !transport->device_size && !transport->user_scan;
}

/*
 * Returns why a host cannot be taken from its driver, or NULL. This code must know everything that
 * the kernel calls in it until it is removed.
 */
static const char *unknown(const struct Scsi_Host *host, const struct guardrail_modules *modules)
{
	const struct scsi_host_template *driver = host->hostt;
	const struct scsi_transport_template *transport = host->transportt;

	if (!guardrail_is_of(driver->queuecommand, modules) || !guardrail_is_of(driver, modules))
		return "its driver has it from another module";
	if (host->shost_state != SHOST_RUNNING && host->shost_state != SHOST_RECOVERY)
		return "it is not running";
	if (host->host_lock != &host->default_lock)
		return "its lock is the driver's";
	if (driver->commit_rqs || driver->mq_poll)
		return "its driver does more than is known here";
	if (transport->eh_strategy_handler || (!is_blank(transport) && !is_parallel(transport)))
		return "its transport is not known here";
	if (is_parallel(transport) && !guardrail_is_of(*spi_functions_of(transport), modules))
		return "its transport is not as it is known here";
	return NULL;
}

/* Returns why a host cannot wait for a driver, or NULL. This code must know everything that the kernel reads in it. */
static const char *leaves(const struct Scsi_Host *host)
{
	const struct scsi_host_template *driver = host->hostt;

	if (!host->shost_gendev.parent || !dev_is_pci(host->shost_gendev.parent))
		return "it is no PCI device's";
	if (driver->init_cmd_priv || driver->exit_cmd_priv || driver->target_alloc || driver->target_destroy || driver->map_queues ||
	    driver->dma_need_drain || driver->ioctl || driver->shost_groups || driver->sdev_groups)
		return "its driver does more than is known here";
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	if (driver->nr_reserved_cmds)
		return "its driver does more than is known here";
#endif
	return NULL;
}

struct guardrail_parked *guardrail_find_parked(const struct Scsi_Host *host)
{
	struct guardrail_parked *parked;

	lockdep_assert_held(&guardrail_parked_lock);
	list_for_each_entry(parked, &guardrail_parked_hosts, list)
		if (parked->host == host)
			return parked;
	return NULL;
}

void guardrail_parked_fail(struct guardrail_parked *parked)
{
	lockdep_assert_held(&guardrail_parked_lock);
	static_call(guardrail_scsi_unblock)(parked->host, SDEV_TRANSPORT_OFFLINE);
	parked->offline = true;
	pr_err("SCSI host %u has no driver: its devices are offline until one is loaded\n", parked->host->host_no);
}

void guardrail_parked_wait(struct guardrail_parked *parked)
{
	lockdep_assert_held(&guardrail_parked_lock);
	parked->state = PARKED_WAITING;
	parked->coming = NULL;
	parked->host->transportt = parked->transport;
	if (parked->functions)
		WRITE_ONCE(*parked->functions, &guardrail_no_functions);
}

/* True while the loader of a module waits for what its init function has started, and so keeps the module. */
static bool is_loading(const struct module *module)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	return READ_ONCE(module->mem[MOD_INIT_TEXT].size);
#else
	return READ_ONCE(module->init_layout.size);
#endif
}

/*
 * Removes a host that cannot wait, or whose devices are still being found. The loader of the driver
 * waits for that and keeps the module. So the commands cannot wait for the new driver, which starts
 * with a host of its own. The rest of this host keeps its template.
 */
static void remove(struct guardrail_parked *parked)
{
	struct Scsi_Host *host = parked->host;

	parked->stand_in->template.queuecommand = guardrail_scsi_gone;
	guardrail_parked_fail(parked);
	list_del(&parked->list);
	kfree(parked);
	static_call(guardrail_scsi_remove)(host);
}

/**
 * struct parking - Hosts of a domain that are being parked.
 * @domain: The domain.
 * @modules: Its modules.
 * @fails: No driver will be loaded for them.
 * @hosts: How many hosts were parked.
 * @commands: How many commands wait.
 */
struct parking {
	u32 domain;
	const struct guardrail_modules *modules;
	bool fails;
	unsigned int hosts, commands;
};

static struct guardrail_parked *new_parked(struct Scsi_Host *host, const struct parking *parking, unsigned long size)
{
	struct guardrail_parked *parked = kzalloc(sizeof(*parked), GFP_KERNEL);
	struct guardrail_stand_in *stand_in = guardrail_stand_in_for(host->hostt);
	struct module *self = THIS_MODULE;

	if (!parked || !stand_in || !try_module_get(self)) {
		kfree(parked);
		return NULL;
	}
	stand_in->hosts++;
	*parked = (struct guardrail_parked){
		.domain = parking->domain, .host = host, .stand_in = stand_in, .transport = host->transportt, .size = size,
		.can_queue = host->can_queue, .nr_hw_queues = host->tag_set.nr_hw_queues, .leaves = leaves(host),
	};
	/* The host needs these two modules, and may be their only user at the moment. */
	parked->used[0] = guardrail_module_at((unsigned long)host->tag_set.ops);
	if (is_parallel(host->transportt)) {
		parked->functions = spi_functions_of(host->transportt);
		parked->used[1] = guardrail_module_at((unsigned long)host->transportt->host_attrs.ac.class);
	}
	__module_get(parked->used[0]);
	__module_get(parked->used[1]);
	return parked;
}

/* Parks a host. Calls that the kernel has started run on for a moment. */
static int park(const struct guardrail_held *held, void *data)
{
	struct Scsi_Host *host = container_of((void *)held->start, struct Scsi_Host, hostdata);
	struct parking *parking = data;
	struct guardrail_parked *parked;
	const char *why;

	if (held->right != GUARDRAIL_OWNER || held->type != GUARDRAIL_KIND_HOSTDATA || guardrail_find_parked(host))
		return 0;
	why = unknown(host, parking->modules);
	if (!why && !guardrail_scsi_find())
		why = "the kernel has no symbols for the functions of scsi_mod";
	parked = why ? NULL : new_parked(host, parking, held->len);
	if (!parked) {
		pr_warn("SCSI host %u cannot stay without its driver: %s\n", host->host_no, why ?: "no memory");
		return 0;
	}
	if (parked->leaves)
		pr_warn("SCSI host %u is removed with its disks: %s\n", host->host_no, parked->leaves);
	guardrail_scsi_remove_file(host);
	WRITE_ONCE(host->hostt, &parked->stand_in->template);
	if (parked->functions)
		WRITE_ONCE(*parked->functions, &guardrail_no_functions);
	if (static_call(guardrail_scsi_block)(host))
		pr_warn("SCSI host %u: a device cannot be blocked\n", host->host_no);
	list_add_tail(&parked->list, &guardrail_parked_hosts);
	parking->hosts++;
	return 0;
}

/* Requeues a command that the driver had. */
static int put_back(const struct guardrail_held *held, void *data)
{
	struct scsi_cmnd *cmd = (struct scsi_cmnd *)held->start;
	struct parking *parking = data;

	if (held->right != GUARDRAIL_OBJECT || held->type != GUARDRAIL_TYPE_SCSI_CMND || !guardrail_find_parked(cmd->device->host))
		return 0;
	guardrail_destroy_object(parking->domain, held->start, GUARDRAIL_TYPE_SCSI_CMND);
	static_call(guardrail_scsi_unmap)(cmd);
	cmd->result = DID_REQUEUE << 16;
	local_bh_disable();
	static_call(guardrail_scsi_done)(cmd);
	local_bh_enable();
	parking->commands++;
	return 0;
}

/* The driver's uses are moved to its stand-in; a host that cannot wait is removed. */
static void settle_parked(struct guardrail_parked *parked, struct parking *parking)
{
	const struct scsi_host_template *driver = parked->stand_in->driver;
	bool loading = is_loading(driver->module);

	guardrail_move_uses(driver->module, loading, &parked->stand_in->module);
	if (loading || parked->leaves) {
		remove(parked);
		parking->hosts--;
	} else if (parking->fails) {
		guardrail_parked_fail(parked);
	}
}

static int park_hosts(u32 domain, const struct guardrail_modules *modules, bool fails)
{
	struct parking parking = { .domain = domain, .modules = modules, .fails = fails };
	struct guardrail_parked *parked, *next;

	mutex_lock(&guardrail_parked_lock);
	list_for_each_entry(parked, &guardrail_parked_hosts, list)
		if (parked->domain == domain)
			guardrail_parked_wait(parked);
	guardrail_walk(domain, park, &parking);
	if (parking.hosts) {
		guardrail_walk(domain, put_back, &parking);
		guardrail_wait_readers();
		list_for_each_entry_safe(parked, next, &guardrail_parked_hosts, list)
			if (parked->domain == domain && guardrail_is_of(parked->stand_in->driver, modules))
				settle_parked(parked, &parking);
		pr_info("domain %u: %u SCSI hosts stay, and %u commands wait\n", domain, parking.hosts, parking.commands);
	}
	mutex_unlock(&guardrail_parked_lock);
	return 0;
}

static unsigned int waiting(u32 domain)
{
	struct guardrail_parked *parked;
	unsigned int n = 0;

	mutex_lock(&guardrail_parked_lock);
	list_for_each_entry(parked, &guardrail_parked_hosts, list)
		n += parked->domain == domain;
	mutex_unlock(&guardrail_parked_lock);
	return n;
}

static unsigned int wait_for_drivers(u32 domain)
{
	unsigned long end = jiffies + msecs_to_jiffies(SETTLE_MS);

	while (waiting(domain) && !guardrail_is_dead(domain) && time_before(jiffies, end))
		msleep(10);
	return waiting(domain);
}

static void fail_hosts(u32 domain)
{
	struct guardrail_parked *parked;

	mutex_lock(&guardrail_parked_lock);
	list_for_each_entry(parked, &guardrail_parked_hosts, list)
		if (parked->domain == domain && !parked->offline)
			guardrail_parked_fail(parked);
	mutex_unlock(&guardrail_parked_lock);
}

static struct guardrail_recovery_class scsi_class = {
	.name = "SCSI hosts",
	.not_restored = "a SCSI host was not registered again",
	.park = park_hosts,
	.restore = wait_for_drivers,
	.fail = fail_hosts,
	.exit = guardrail_stand_ins_exit,
};

void __init guardrail_scsi_register(void)
{
	guardrail_recovery_register(&scsi_class);
}
