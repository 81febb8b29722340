// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * SCSI hosts whose driver is killed stay: hosts, the devices behind them and all that uses those are not the driver's. While it is away
 * a template of this module's stands where the driver's was, the devices are blocked, and commands wait. The driver that comes anew is handed the
 * host that is there when it asks for one.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/static_call.h>
#include <linux/version.h>
#include <scsi/scsi.h>
#include <scsi/scsi_cmnd.h>
#include <scsi/scsi_device.h>
#include <scsi/scsi_eh.h>
#include <scsi/scsi_host.h>
#include <scsi/scsi_transport.h>
#include <scsi/scsi_transport_spi.h>

#include "border/custom.h"
#include "recovery/recover.h"

/* How long is waited for hosts whose driver sets them up after its init function has returned. */
#define SETTLE_MS 10000
/* Whoever has read a pointer to a template has used it after that time. */
#define GRACE_MS 20
/* More than anybody uses a driver. */
#define MANY (1 << 20)

/* What scsi_mod does, which may come after this module and is not needed for anything else. */
void guardrail_t_proc_dir(const struct scsi_host_template *template);
void guardrail_t_proc_host(struct Scsi_Host *host);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_block, scsi_host_block);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_unblock, scsi_host_unblock);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_done, scsi_done);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_unmap, scsi_dma_unmap);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_next, __scsi_iterate_devices);
DEFINE_STATIC_CALL_NULL(guardrail_scsi_remove, scsi_remove_host);
DEFINE_STATIC_CALL_NULL(guardrail_proc_dir_come, guardrail_t_proc_dir);
DEFINE_STATIC_CALL_NULL(guardrail_proc_dir_go, guardrail_t_proc_dir);
DEFINE_STATIC_CALL_NULL(guardrail_proc_host_come, guardrail_t_proc_host);
DEFINE_STATIC_CALL_NULL(guardrail_proc_host_go, guardrail_t_proc_host);

/*
 * Stands for a driver's template, and counts who uses the driver: the kernel does so by the template's module, once for each use of
 * a device. They are never freed, but used again, since somebody may be about to give back what he has of one.
 */
struct stand_in {
	struct list_head list;
	const struct scsi_host_template *driver;	/* the template that was there */
	unsigned int hosts;				/* that have it; 0 where it is free */
	struct scsi_host_template template;
	struct module module;
	char name[64], proc_name[32];
};

enum state { WAITING, OFFERED, ADDED };

/* A host without a driver. */
struct parked {
	struct list_head list;
	u32 domain;
	enum state state;
	struct Scsi_Host *host;
	struct stand_in *stand_in;
	const struct scsi_host_template *coming;	/* that of the driver which has got the host */
	struct scsi_transport_template *transport;
	struct spi_function_template **functions;	/* where that keeps the driver's, or NULL */
	struct module *used[2];				/* they stay as long */
	unsigned long size;				/* of the driver's part */
	int can_queue;
	unsigned int nr_hw_queues;
	bool offline;
};

static LIST_HEAD(parked_hosts);
static LIST_HEAD(stand_ins);
static DEFINE_MUTEX(parked_lock);
static struct spi_function_template no_functions;

#define FIND(call, type, name)                                       \
	({                                                           \
		unsigned long addr = guardrail_find_symbol(name);    \
		if (addr)                                            \
			static_call_update(call, (typeof(&type))addr); \
		addr;                                                \
	})

/* False where the kernel does not tell where one of the functions is. */
static bool find_functions(void)
{
	bool found = FIND(guardrail_scsi_block, scsi_host_block, "scsi_host_block") &&
		     FIND(guardrail_scsi_unblock, scsi_host_unblock, "scsi_host_unblock") &&
		     FIND(guardrail_scsi_done, scsi_done, "scsi_done") &&
		     FIND(guardrail_scsi_unmap, scsi_dma_unmap, "scsi_dma_unmap") &&
		     FIND(guardrail_scsi_next, __scsi_iterate_devices, "__scsi_iterate_devices") &&
		     FIND(guardrail_scsi_remove, scsi_remove_host, "scsi_remove_host");

#ifdef CONFIG_SCSI_PROC_FS
	found = found && FIND(guardrail_proc_dir_come, guardrail_t_proc_dir, "scsi_proc_hostdir_add") &&
		FIND(guardrail_proc_dir_go, guardrail_t_proc_dir, "scsi_proc_hostdir_rm") &&
		FIND(guardrail_proc_host_come, guardrail_t_proc_host, "scsi_proc_host_add") &&
		FIND(guardrail_proc_host_go, guardrail_t_proc_host, "scsi_proc_host_rm");
#endif
	return found;
}

/* The host's file in /proc/scsi, in a folder of its driver's. */
static void remove_file(struct Scsi_Host *host)
{
	if (!IS_ENABLED(CONFIG_SCSI_PROC_FS) || !host->hostt->show_info)
		return;
	static_call(guardrail_proc_host_go)(host);
	static_call(guardrail_proc_dir_go)(host->hostt);
}

static void make_file(struct Scsi_Host *host)
{
	if (!IS_ENABLED(CONFIG_SCSI_PROC_FS) || !host->hostt->show_info)
		return;
	static_call(guardrail_proc_dir_come)(host->hostt);
	static_call(guardrail_proc_host_come)(host);
}

/* What the kernel asks a driver that is away. Its error handler tries commands for some time after a reset that has succeeded. */
static typeof(((struct scsi_host_template *)NULL)->queuecommand(NULL, NULL)) busy(struct Scsi_Host *host, struct scsi_cmnd *cmd)
{
	return SCSI_MLQUEUE_HOST_BUSY;
}

/* Where none will come. */
static typeof(busy(NULL, NULL)) gone(struct Scsi_Host *host, struct scsi_cmnd *cmd)
{
	cmd->result = DID_NO_CONNECT << 16;
	static_call(guardrail_scsi_done)(cmd);
	return 0;
}

static int was_reset(struct scsi_cmnd *cmd)
{
	return SUCCESS;
}

static struct stand_in *new_stand_in(const struct scsi_host_template *driver)
{
	struct stand_in *one, *found = NULL;
	struct scsi_host_template *template;

	list_for_each_entry(one, &stand_ins, list) {
		if (one->hosts && one->driver == driver)
			return one;
		if (!one->hosts)
			found = one;
	}
	if (!found) {
		found = kzalloc(sizeof(*found), GFP_KERNEL);
		if (!found)
			return NULL;
		list_add(&found->list, &stand_ins);
		atomic_set(&found->module.refcnt, 1 + MANY);
	}
	found->driver = driver;
	strscpy(found->name, driver->name ?: "", sizeof(found->name));
	strscpy(found->proc_name, driver->proc_name ?: "", sizeof(found->proc_name));
	template = &found->template;
	*template = (struct scsi_host_template){
		.module = &found->module, .name = found->name, .proc_name = driver->proc_name ? found->proc_name : NULL,
		.queuecommand = busy, .eh_abort_handler = was_reset, .eh_device_reset_handler = was_reset,
		.eh_bus_reset_handler = was_reset, .eh_host_reset_handler = was_reset,
	};
#define SAME(field) template->field = driver->field
	SAME(cmd_size);
	SAME(can_queue);
	SAME(this_id);
	SAME(sg_tablesize);
	SAME(sg_prot_tablesize);
	SAME(max_sectors);
	SAME(max_segment_size);
	SAME(dma_boundary);
	SAME(virt_boundary_mask);
	SAME(cmd_per_lun);
	SAME(track_queue_depth);
	SAME(supported_mode);
	SAME(emulated);
	SAME(skip_settle_delay);
	SAME(no_write_same);
	SAME(host_tagset);
	SAME(max_host_blocked);
	SAME(vendor_id);
#undef SAME
	return found;
}

/* The uses of a driver that the kernel has counted for @from are for @to from now on. Those given back too late were counted for @to already. */
static void move_uses(struct module *from, int none, struct module *to)
{
	int n = module_refcount(from) - none;

	for (; n > 0; n--) {
		__module_get(to);
		module_put(from);
	}
	for (; n < 0; n++) {
		__module_get(from);
		module_put(to);
	}
}

/* Where a template of parallel SCSI keeps the driver's functions: behind its public part. */
static struct spi_function_template **functions_of(const struct scsi_transport_template *transport)
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

/* Why a host cannot stay without its driver, or NULL: whatever the kernel calls or reads in it has to be known here. */
static const char *unknown(const struct Scsi_Host *host, const struct guarded_modules *modules)
{
	const struct scsi_host_template *driver = host->hostt;
	const struct scsi_transport_template *transport = host->transportt;

	if (!guardrail_is_of(driver->queuecommand, modules) || !guardrail_is_of(driver, modules))
		return "its driver has it from another module";
	if (host->shost_state != SHOST_RUNNING && host->shost_state != SHOST_RECOVERY)
		return "it is not running";
	if (!host->shost_gendev.parent || !dev_is_pci(host->shost_gendev.parent))
		return "it is no PCI device's";
	if (host->host_lock != &host->default_lock)
		return "its lock is the driver's";
	if (driver->commit_rqs || driver->init_cmd_priv || driver->exit_cmd_priv || driver->target_alloc ||
	    driver->target_destroy || driver->map_queues || driver->mq_poll || driver->dma_need_drain || driver->ioctl ||
	    driver->shost_groups || driver->sdev_groups)
		return "its driver does more than is known here";
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 18, 0)
	if (driver->nr_reserved_cmds)
		return "its driver does more than is known here";
#endif
	if (transport->eh_strategy_handler || (!is_blank(transport) && !is_parallel(transport)))
		return "its transport is not known here";
	if (is_parallel(transport) && !guardrail_is_of(*functions_of(transport), modules))
		return "its transport is not as it is known here";
	return NULL;
}

static struct parked *find_parked(const struct Scsi_Host *host)
{
	struct parked *parked;

	list_for_each_entry(parked, &parked_hosts, list)
		if (parked->host == host)
			return parked;
	return NULL;
}

/* Commands fail from now on. */
static void fail_commands(struct parked *parked)
{
	static_call(guardrail_scsi_unblock)(parked->host, SDEV_TRANSPORT_OFFLINE);
	parked->offline = true;
	pr_err("SCSI host %u has no driver: its devices are offline until one comes\n", parked->host->host_no);
}

/* The driver has not taken what it was offered. */
static void take_back(struct parked *parked)
{
	parked->state = WAITING;
	parked->coming = NULL;
	parked->host->transportt = parked->transport;
	if (parked->functions)
		WRITE_ONCE(*parked->functions, &no_functions);
}

/* True while whoever loads a module waits for what its init function has begun, and so keeps it. */
static bool is_loading(const struct module *module)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	return READ_ONCE(module->mem[MOD_INIT_TEXT].size);
#else
	return READ_ONCE(module->init_layout.size);
#endif
}

/*
 * A host whose devices are still looked for goes: whoever loads the driver waits for that, and keeps the module as long, so its commands cannot wait
 * for the driver that comes anew. That one begins with a host of its own. What is left of this one keeps its template.
 */
static void remove(struct parked *parked)
{
	struct Scsi_Host *host = parked->host;

	parked->stand_in->template.queuecommand = gone;
	fail_commands(parked);
	list_del(&parked->list);
	kfree(parked);
	static_call(guardrail_scsi_remove)(host);
}

struct parking {
	u32 domain;
	const struct guarded_modules *modules;
	bool fails;
	unsigned int hosts, commands;
};

static struct parked *new_parked(struct Scsi_Host *host, const struct parking *parking, unsigned long size)
{
	struct parked *parked = kzalloc(sizeof(*parked), GFP_KERNEL);
	struct stand_in *stand_in = new_stand_in(host->hostt);
	struct module *self = THIS_MODULE;

	if (!parked || !stand_in || !try_module_get(self)) {
		kfree(parked);
		return NULL;
	}
	stand_in->hosts++;
	*parked = (struct parked){
		.domain = parking->domain, .host = host, .stand_in = stand_in, .transport = host->transportt, .size = size,
		.can_queue = host->can_queue, .nr_hw_queues = host->tag_set.nr_hw_queues,
	};
	/* These two are what the host stands on, and nobody else may need them for the moment. */
	parked->used[0] = guardrail_module_at((unsigned long)host->tag_set.ops);
	if (is_parallel(host->transportt)) {
		parked->functions = functions_of(host->transportt);
		parked->used[1] = guardrail_module_at((unsigned long)host->transportt->host_attrs.ac.class);
	}
	__module_get(parked->used[0]);
	__module_get(parked->used[1]);
	return parked;
}

/* Takes the driver from its host; what the kernel has begun to call goes on for a moment. */
static int park(const struct guardrail_held *held, void *data)
{
	struct Scsi_Host *host = container_of((void *)held->start, struct Scsi_Host, hostdata);
	struct parking *parking = data;
	struct parked *parked;
	const char *why;

	if (held->right != GUARDRAIL_OWNER || held->type != KIND_HOSTDATA || find_parked(host))
		return 0;
	why = unknown(host, parking->modules);
	if (!why && !find_functions())
		why = "the kernel does not tell where scsi_mod's functions are";
	parked = why ? NULL : new_parked(host, parking, held->len);
	if (!parked) {
		pr_warn("SCSI host %u cannot stay without its driver: %s\n", host->host_no, why ?: "no memory");
		return 0;
	}
	remove_file(host);
	WRITE_ONCE(host->hostt, &parked->stand_in->template);
	if (parked->functions)
		WRITE_ONCE(*parked->functions, &no_functions);
	if (static_call(guardrail_scsi_block)(host))
		pr_warn("SCSI host %u: a device cannot be blocked\n", host->host_no);
	list_add_tail(&parked->list, &parked_hosts);
	parking->hosts++;
	return 0;
}

/* A command that the driver had is tried again. */
static int put_back(const struct guardrail_held *held, void *data)
{
	struct scsi_cmnd *cmd = (struct scsi_cmnd *)held->start;
	struct parking *parking = data;

	if (held->right != GUARDRAIL_OBJECT || held->type != TYPE_SCSI_CMND || !find_parked(cmd->device->host))
		return 0;
	guardrail_clear_object(parking->domain, held->start, TYPE_SCSI_CMND);
	static_call(guardrail_scsi_unmap)(cmd);
	cmd->result = DID_REQUEUE << 16;
	local_bh_disable();
	static_call(guardrail_scsi_done)(cmd);
	local_bh_enable();
	parking->commands++;
	return 0;
}

void guardrail_park_hosts(u32 domain, const struct guarded_modules *modules, bool fails)
{
	struct parking parking = { .domain = domain, .modules = modules };
	struct parked *parked, *next;

	mutex_lock(&parked_lock);
	list_for_each_entry(parked, &parked_hosts, list)
		if (parked->domain == domain)
			take_back(parked);
	guardrail_walk(domain, park, &parking);
	if (parking.hosts) {
		guardrail_walk(domain, put_back, &parking);
		msleep(GRACE_MS);
		list_for_each_entry_safe(parked, next, &parked_hosts, list) {
			const struct scsi_host_template *driver = parked->stand_in->driver;
			bool loading;

			if (parked->domain != domain || !guardrail_is_of(driver, modules))
				continue;
			loading = is_loading(driver->module);
			move_uses(driver->module, loading, &parked->stand_in->module);
			if (loading) {
				remove(parked);
				parking.hosts--;
			} else if (fails) {
				fail_commands(parked);
			}
		}
		pr_info("domain %u: %u SCSI hosts stay, and %u commands wait\n", domain, parking.hosts, parking.commands);
	}
	mutex_unlock(&parked_lock);
}

/* A device is made known to the driver, as when it was found. */
static int set_up(struct scsi_device *dev, const struct scsi_host_template *driver, bool parallel)
{
	struct queue_limits *limits __maybe_unused;
	/* One that is just being found is not set up yet: who has found it does that. */
	bool whole = dev->sdev_state != SDEV_CREATED && dev->sdev_state != SDEV_CREATED_BLOCK;
	int err = 0;

	dev->hostdata = NULL;
	/* No command can be tried for now, so that nothing is negotiated here. */
	if (parallel && whole)
		spi_initial_dv(dev->sdev_target) = 1;
	/* The driver resets the bus, of which devices tell. */
	dev->was_reset = 1;
	dev->expecting_cc_ua = 1;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	/* What the driver says of the queue was set when the device was found. */
	limits = kmemdup(&dev->request_queue->limits, sizeof(*limits), GFP_KERNEL);
	if (!limits)
		return -ENOMEM;
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
	if (driver->sdev_init)
		err = driver->sdev_init(dev);
	if (!err && whole && driver->sdev_configure)
		err = driver->sdev_configure(dev, limits);
#else
	if (driver->slave_alloc)
		err = driver->slave_alloc(dev);
	if (!err && whole && driver->slave_configure)
		err = driver->slave_configure(dev);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	if (!err && whole && driver->device_configure)
		err = driver->device_configure(dev, limits);
#endif
#endif
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	kfree(limits);
#endif
	return err;
}

static void forget(struct parked *parked)
{
	list_del(&parked->list);
	module_put(parked->used[0]);
	module_put(parked->used[1]);
	kfree(parked);
	module_put(THIS_MODULE);
}

/* The driver has the host and looks for devices: it is told of those that are there, and commands go on. */
static void settle(struct parked *parked)
{
	const struct scsi_host_template *driver = parked->coming;
	struct stand_in *stand_in = parked->stand_in;
	struct Scsi_Host *host = parked->host;
	struct scsi_device *dev = NULL;
	unsigned int n = 0;
	int err = 0;

	while ((dev = static_call(guardrail_scsi_next)(host, dev))) {
		dev->sdev_target->hostdata = NULL;
		err = err ?: set_up(dev, driver, parked->functions);
		n++;
	}
	if (err || guardrail_is_dead(parked->domain)) {
		pr_err("SCSI host %u: the driver that has come does not take its devices (error %d)\n", host->host_no, err);
		take_back(parked);
		return;
	}
	move_uses(&stand_in->module, MANY, driver->module);
	WRITE_ONCE(host->hostt, (void *)driver);
	make_file(host);
	msleep(GRACE_MS);
	move_uses(&stand_in->module, MANY, driver->module);
	stand_in->hosts--;
	atomic_set(&host->host_blocked, 0);
	static_call(guardrail_scsi_unblock)(host, SDEV_RUNNING);
	pr_info("SCSI host %u has its driver again, with %u devices\n", host->host_no, n);
	forget(parked);
}

static unsigned int waiting(u32 domain)
{
	struct parked *parked;
	unsigned int n = 0;

	mutex_lock(&parked_lock);
	list_for_each_entry(parked, &parked_hosts, list)
		n += parked->domain == domain;
	mutex_unlock(&parked_lock);
	return n;
}

unsigned int guardrail_settle_hosts(u32 domain)
{
	unsigned long end = jiffies + msecs_to_jiffies(SETTLE_MS);

	while (waiting(domain) && !guardrail_is_dead(domain) && time_before(jiffies, end))
		msleep(10);
	return waiting(domain);
}

void guardrail_fail_hosts(u32 domain)
{
	struct parked *parked;

	mutex_lock(&parked_lock);
	list_for_each_entry(parked, &parked_hosts, list)
		if (parked->domain == domain && !parked->offline)
			fail_commands(parked);
	mutex_unlock(&parked_lock);
}

/* The device is being probed by this driver. */
static bool is_probed(const struct device *dev, const struct scsi_host_template *driver)
{
	const struct device_driver *by = READ_ONCE(dev->driver);

	return by && by->owner == driver->module && dev->links.status == DL_DEV_PROBING;
}

/* A driver asks for a host: it gets the one that its device has already. */
GUARDRAIL_CUSTOM(scsi_host_comes)
{
	struct scsi_host_template *driver = (struct scsi_host_template *)object_of(action, frame);
	struct parked *parked;
	int found = 0;

	if (!driver || list_empty(&parked_hosts))
		return 0;
	mutex_lock(&parked_lock);
	list_for_each_entry(parked, &parked_hosts, list) {
		struct Scsi_Host *host = parked->host;

		if (parked->domain != action->domain || parked->state != WAITING || size_of(action, frame) > parked->size ||
		    driver->cmd_size != parked->stand_in->template.cmd_size || strcmp(driver->name, parked->stand_in->name) ||
		    !is_probed(host->shost_gendev.parent, driver))
			continue;
		memset(host->hostdata, 0, parked->size);
		parked->state = OFFERED;
		parked->coming = driver;
		frame->result = (unsigned long)host;
		found = 1;
		break;
	}
	mutex_unlock(&parked_lock);
	return found;
}

/* The host that an action is about, if it has no driver, with the lock; NULL without it. */
static struct parked *lock_parked(const struct guardrail_action *action, const struct guardrail_frame *frame)
{
	struct Scsi_Host *host = (struct Scsi_Host *)object_of(action, frame);
	struct parked *parked;

	if (!host || list_empty(&parked_hosts))
		return NULL;
	mutex_lock(&parked_lock);
	parked = find_parked(host);
	if (!parked)
		mutex_unlock(&parked_lock);
	return parked;
}

/* It registers the host, which is registered. */
GUARDRAIL_CUSTOM(scsi_host_added)
{
	struct parked *parked = lock_parked(action, frame);
	struct Scsi_Host *host;
	bool same;

	if (!parked)
		return 0;
	host = parked->host;
	same = parked->state == OFFERED && size_of(action, frame) == (unsigned long)host->shost_gendev.parent &&
	       host->can_queue == parked->can_queue && host->transportt == parked->transport &&
	       (host->nr_hw_queues ?: 1) == parked->nr_hw_queues;
	if (same)
		parked->state = ADDED;
	else
		pr_err("SCSI host %u: the driver that has come wants it otherwise than it is\n", host->host_no);
	frame->result = same ? 0 : -EINVAL;
	mutex_unlock(&parked_lock);
	return 1;
}

GUARDRAIL_CUSTOM(scsi_host_scanned)
{
	struct parked *parked = lock_parked(action, frame);

	if (!parked)
		return 0;
	if (parked->state == ADDED)
		settle(parked);
	mutex_unlock(&parked_lock);
	return 1;
}

/* A probe that fails gives back what it has got: the host waits on. */
GUARDRAIL_CUSTOM(scsi_host_back)
{
	struct parked *parked = lock_parked(action, frame);

	if (!parked)
		return 0;
	take_back(parked);
	mutex_unlock(&parked_lock);
	return 1;
}

/* A driver removes a host that it has not got: commands would wait forever. Its template stays, since whoever uses a device still has it. */
GUARDRAIL_CUSTOM(scsi_host_goes)
{
	struct parked *parked = lock_parked(action, frame);

	if (!parked)
		return 0;
	take_back(parked);
	fail_commands(parked);
	list_del(&parked->list);
	kfree(parked);
	mutex_unlock(&parked_lock);
	return 0;
}

/* The transport's template that hosts have is given to the driver that comes; they are known to the transport by it. */
GUARDRAIL_CUSTOM(scsi_transport_comes)
{
	struct spi_function_template *functions = (struct spi_function_template *)object_of(action, frame);
	struct parked *parked;
	int found = 0;

	if (!functions || list_empty(&parked_hosts))
		return 0;
	mutex_lock(&parked_lock);
	list_for_each_entry(parked, &parked_hosts, list) {
		if (parked->domain != action->domain || !parked->functions || found)
			continue;
		WRITE_ONCE(*parked->functions, functions);
		frame->result = (unsigned long)parked->transport;
		found = 1;
	}
	mutex_unlock(&parked_lock);
	return found;
}

GUARDRAIL_CUSTOM(scsi_transport_goes)
{
	struct scsi_transport_template *transport = (struct scsi_transport_template *)object_of(action, frame);
	struct parked *parked;
	int found = 0;

	if (!transport || list_empty(&parked_hosts))
		return 0;
	mutex_lock(&parked_lock);
	list_for_each_entry(parked, &parked_hosts, list) {
		if (parked->transport != transport)
			continue;
		take_back(parked);
		found = 1;
	}
	mutex_unlock(&parked_lock);
	return found;
}

void guardrail_restore_scsi_exit(void)
{
	struct stand_in *one, *next;

	list_for_each_entry_safe(one, next, &stand_ins, list)
		kfree(one);
}
