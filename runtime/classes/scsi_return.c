// SPDX-License-Identifier: GPL-2.0-or-later
/* Gives parked SCSI hosts to the driver that is loaded anew; scsi_parked.h describes it. */
#include <linux/slab.h>
#include <linux/version.h>

#include "base/grace.h"
#include "border/custom.h"
#include "classes/scsi_parked.h"

/* Introduces a device to the driver, as when it was found. */
static int set_up(struct scsi_device *dev, const struct scsi_host_template *driver, bool parallel)
{
	struct queue_limits *limits __maybe_unused;
	/* A device that is just being found is set up by the code that finds it. */
	bool whole = dev->sdev_state != SDEV_CREATED && dev->sdev_state != SDEV_CREATED_BLOCK;
	int err = 0;

	dev->hostdata = NULL;
	/* No command runs for now, so do not negotiate. */
	if (parallel && whole)
		spi_initial_dv(dev->sdev_target) = 1;
	/* The driver resets the bus, which devices report. */
	dev->was_reset = 1;
	dev->expecting_cc_ua = 1;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	/* The driver's limits of the queue were set when the device was found. */
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

static void forget(struct guardrail_parked *parked)
{
	list_del(&parked->list);
	module_put(parked->used[0]);
	module_put(parked->used[1]);
	kfree(parked);
	module_put(THIS_MODULE);
}

/*
 * The driver has the host and looks for devices: introduce the existing ones, and let commands
 * continue.
 */
static void settle(struct guardrail_parked *parked)
{
	const struct scsi_host_template *driver = parked->coming;
	struct guardrail_stand_in *stand_in = parked->stand_in;
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
		pr_err("SCSI host %u: the new driver does not accept its devices (error %d)\n", host->host_no, err);
		guardrail_parked_wait(parked);
		return;
	}
	guardrail_move_uses(&stand_in->module, GUARDRAIL_STAND_IN_USES, driver->module);
	WRITE_ONCE(host->hostt, (void *)driver);
	guardrail_scsi_make_file(host);
	guardrail_wait_readers();
	guardrail_move_uses(&stand_in->module, GUARDRAIL_STAND_IN_USES, driver->module);
	stand_in->hosts--;
	atomic_set(&host->host_blocked, 0);
	static_call(guardrail_scsi_unblock)(host, SDEV_RUNNING);
	pr_info("SCSI host %u has its driver again, with %u devices\n", host->host_no, n);
	forget(parked);
}

/* True while this driver probes the device. */
static bool is_probed(const struct device *dev, const struct scsi_host_template *driver)
{
	const struct device_driver *by = READ_ONCE(dev->driver);

	return by && by->owner == driver->module && dev->links.status == DL_DEV_PROBING;
}

/* A driver requests a host and receives the one that its device has. */
GUARDRAIL_CUSTOM(scsi_host_comes)
{
	struct scsi_host_template *driver = (struct scsi_host_template *)object_of(action, call);
	struct guardrail_parked *parked;
	int found = 0;

	if (!driver || list_empty(&guardrail_parked_hosts))
		return 0;
	mutex_lock(&guardrail_parked_lock);
	list_for_each_entry(parked, &guardrail_parked_hosts, list) {
		struct Scsi_Host *host = parked->host;

		if (parked->domain != action->domain || parked->state != PARKED_WAITING || size_of(action, call) > parked->size ||
		    driver->cmd_size != parked->stand_in->template.cmd_size || strcmp(driver->name, parked->stand_in->name) ||
		    !is_probed(host->shost_gendev.parent, driver))
			continue;
		memset(host->hostdata, 0, parked->size);
		parked->state = PARKED_OFFERED;
		parked->coming = driver;
		call->result = (unsigned long)host;
		found = 1;
		break;
	}
	mutex_unlock(&guardrail_parked_lock);
	return found;
}

/* Finds the host that an action is about, if it is parked, and takes the lock; without it returns NULL and no lock. */
static struct guardrail_parked *lock_parked(const struct guardrail_action *action, const struct guardrail_call *call)
{
	struct Scsi_Host *host = (struct Scsi_Host *)object_of(action, call);
	struct guardrail_parked *parked;

	if (!host || list_empty(&guardrail_parked_hosts))
		return NULL;
	mutex_lock(&guardrail_parked_lock);
	parked = guardrail_find_parked(host);
	if (!parked)
		mutex_unlock(&guardrail_parked_lock);
	return parked;
}

/* The driver registers the host, which is registered already. */
GUARDRAIL_CUSTOM(scsi_host_added)
{
	struct guardrail_parked *parked = lock_parked(action, call);
	struct Scsi_Host *host;
	bool same;

	if (!parked)
		return 0;
	host = parked->host;
	same = parked->state == PARKED_OFFERED && size_of(action, call) == (unsigned long)host->shost_gendev.parent &&
	       host->can_queue == parked->can_queue && host->transportt == parked->transport &&
	       (host->nr_hw_queues ?: 1) == parked->nr_hw_queues;
	if (same)
		parked->state = PARKED_ADDED;
	else
		pr_err("SCSI host %u: the new driver wants other settings than it has\n", host->host_no);
	call->result = same ? 0 : -EINVAL;
	mutex_unlock(&guardrail_parked_lock);
	return 1;
}

GUARDRAIL_CUSTOM(scsi_host_scanned)
{
	struct guardrail_parked *parked = lock_parked(action, call);

	if (!parked)
		return 0;
	if (parked->state == PARKED_ADDED)
		settle(parked);
	mutex_unlock(&guardrail_parked_lock);
	return 1;
}

/* A probe failed and frees its host: the host continues to wait. */
GUARDRAIL_CUSTOM(scsi_host_back)
{
	struct guardrail_parked *parked = lock_parked(action, call);

	if (!parked)
		return 0;
	guardrail_parked_wait(parked);
	mutex_unlock(&guardrail_parked_lock);
	return 1;
}

/*
 * A driver removes a host that it did not receive, whose commands would wait forever. The template
 * stays for threads that still use a device.
 */
GUARDRAIL_CUSTOM(scsi_host_goes)
{
	struct guardrail_parked *parked = lock_parked(action, call);

	if (!parked)
		return 0;
	guardrail_parked_wait(parked);
	guardrail_parked_fail(parked);
	list_del(&parked->list);
	kfree(parked);
	mutex_unlock(&guardrail_parked_lock);
	return 0;
}

/* The new driver gets the transport's template that parked hosts have: the transport knows them by it. */
GUARDRAIL_CUSTOM(scsi_transport_comes)
{
	struct spi_function_template *functions = (struct spi_function_template *)object_of(action, call);
	struct guardrail_parked *parked;
	int found = 0;

	if (!functions || list_empty(&guardrail_parked_hosts))
		return 0;
	mutex_lock(&guardrail_parked_lock);
	list_for_each_entry(parked, &guardrail_parked_hosts, list) {
		if (parked->domain != action->domain || !parked->functions || found)
			continue;
		WRITE_ONCE(*parked->functions, functions);
		call->result = (unsigned long)parked->transport;
		found = 1;
	}
	mutex_unlock(&guardrail_parked_lock);
	return found;
}

GUARDRAIL_CUSTOM(scsi_transport_goes)
{
	struct scsi_transport_template *transport = (struct scsi_transport_template *)object_of(action, call);
	struct guardrail_parked *parked;
	int found = 0;

	if (!transport || list_empty(&guardrail_parked_hosts))
		return 0;
	mutex_lock(&guardrail_parked_lock);
	list_for_each_entry(parked, &guardrail_parked_hosts, list) {
		if (parked->transport != transport)
			continue;
		guardrail_parked_wait(parked);
		found = 1;
	}
	mutex_unlock(&guardrail_parked_lock);
	return found;
}
