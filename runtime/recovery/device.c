// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Restoring devices; recovery/device.h describes it.
 *
 * What a driver keeps in memory suffices to set its device up anew: it does so whenever a machine was off for a while. So a
 * checkpoint is the memory, which the undo log restores, and the configuration of the device on its bus, which is noted
 * once, when the driver has bound the device. To restore it, the driver's own functions end what it has under way (freeze),
 * and set the device up (restore). By contract these two do not change the power state.
 */
#include <linux/device.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/pm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/task_work.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "domain/entry.h"
#include "domain/module.h"
#include "recovery/device.h"
#include "recovery/recover.h"
#include "transact/transaction.h"

/* How long a thread waits until its device is restored. */
#define WAIT_MS 60000

/**
 * struct known - A device whose driver has transactions.
 * @list: Place among all.
 * @dev: The device, which is held.
 * @domain: The driver's domain.
 * @state: Its configuration.
 */
struct known {
	struct list_head list;
	struct pci_dev *dev;
	u32 domain;
	struct pci_saved_state *state;
};

/**
 * struct restoring - What restores the devices of a domain.
 * @work: Does it.
 * @asked: When it was asked for.
 */
struct restoring {
	struct work_struct work;
	ktime_t asked;
};

static LIST_HEAD(all);
/* Protects the list. Taken in process context; only all_lock nests inside. */
static DEFINE_MUTEX(all_mutex);
/* Held for changes of the list, together with the mutex. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(all_lock);
static struct restoring restorings[GUARDRAIL_DOMAINS];
/* The domains whose devices are being restored, a bit each. */
static unsigned long under_way;
static DECLARE_WAIT_QUEUE_HEAD(over);

/**
 * struct wait - A thread that waits until devices are restored, on its way back to user space.
 * @work: Runs on that way.
 * @domain: Domain of the devices.
 */
struct wait {
	struct callback_head work;
	u32 domain;
};

/* The domain of a driver, if its entries can be transactions; 0 for others. */
static u32 domain_of(const struct device_driver *driver)
{
	const struct guardrail_module *guarded = driver ? guardrail_guarded_at((unsigned long)driver) : NULL;

	return guarded && guarded->n_transacts ? guarded->domain : 0;
}

static struct known *find(const struct pci_dev *dev)
{
	struct known *known;

	list_for_each_entry(known, &all, list)
		if (known->dev == dev)
			return known;
	return NULL;
}

static void forget(struct known *known)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&all_lock, flags);
	list_del(&known->list);
	raw_spin_unlock_irqrestore(&all_lock, flags);
	pci_dev_put(known->dev);
	kfree(known->state);
	kfree(known);
}

/* Notes a device that its driver has bound. Its lock is held. */
static void note(struct pci_dev *dev)
{
	struct known *known = kzalloc(sizeof(*known), GFP_KERNEL);
	unsigned long flags;
	bool saved;

	if (!known)
		return;
	/* The driver may have saved a state of its own. */
	saved = dev->state_saved;
	pci_save_state(dev);
	known->state = pci_store_saved_state(dev);
	dev->state_saved = saved;
	known->dev = pci_dev_get(dev);
	known->domain = domain_of(dev->dev.driver);
	mutex_lock(&all_mutex);
	raw_spin_lock_irqsave(&all_lock, flags);
	list_add_tail(&known->list, &all);
	raw_spin_unlock_irqrestore(&all_lock, flags);
	mutex_unlock(&all_mutex);
}

static int on_bus(struct notifier_block *block, unsigned long event, void *data)
{
	struct device *dev = data;
	struct known *known;

	if (event == BUS_NOTIFY_BOUND_DRIVER && domain_of(dev->driver))
		note(to_pci_dev(dev));
	if (event != BUS_NOTIFY_UNBOUND_DRIVER)
		return NOTIFY_DONE;
	mutex_lock(&all_mutex);
	known = find(to_pci_dev(dev));
	if (known)
		forget(known);
	mutex_unlock(&all_mutex);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = on_bus };

/* Returns NULL, or why the device cannot be restored. Its lock is held. */
static const char *restore(struct pci_dev *dev)
{
	const struct dev_pm_ops *pm = dev->dev.driver->pm;
	const struct known *known;
	int err;

	if (!pm || !pm->freeze || !pm->restore)
		return "its driver has no code that saves and restores it";
	err = pm->freeze(&dev->dev);
	mutex_lock(&all_mutex);
	known = find(dev);
	if (!err && known && known->state) {
		pci_load_saved_state(dev, known->state);
		pci_restore_state(dev);
	}
	mutex_unlock(&all_mutex);
	err = err ?: pm->restore(&dev->dev);
	return err ? "its driver's code that saves and restores it has failed" : NULL;
}

/* Finds a device of a domain that was not looked at yet, and holds it. */
static struct pci_dev *next_of(u32 domain, const struct pci_dev *before)
{
	struct known *known;
	struct pci_dev *found = NULL;
	bool behind = !before;

	mutex_lock(&all_mutex);
	list_for_each_entry(known, &all, list) {
		if (behind && known->domain == domain) {
			found = pci_dev_get(known->dev);
			break;
		}
		behind |= known->dev == before;
	}
	mutex_unlock(&all_mutex);
	return found;
}

static void work(struct work_struct *work)
{
	struct restoring *restoring = container_of(work, struct restoring, work);
	u32 domain = restoring - restorings;
	struct pci_dev *dev = NULL, *next;
	const char *failed = NULL;
	unsigned int n = 0;

	while (!failed && (next = next_of(domain, dev))) {
		pci_dev_put(dev);
		dev = next;
		device_lock(&dev->dev);
		if (domain_of(dev->dev.driver) == domain && !guardrail_is_dead(domain)) {
			failed = restore(dev);
			if (failed)
				pci_err(dev, "guardrail: not restored: %s\n", failed);
			else
				pci_info(dev, "guardrail: restored, %lld us after the fault\n", ktime_us_delta(ktime_get(), restoring->asked));
			n++;
		}
		device_unlock(&dev->dev);
	}
	pci_dev_put(dev);
	if (!n && !failed)
		failed = "it has no PCI device";
	if (failed)
		guardrail_recover(domain, failed);
	clear_bit(domain, &under_way);
	if (work_pending(work))
		set_bit(domain, &under_way);
	wake_up_all(&over);
	module_put(THIS_MODULE);
}

static void wait_on_return(struct callback_head *work)
{
	struct wait *wait = container_of(work, struct wait, work);

	wait_event_killable_timeout(over, !test_bit(wait->domain, &under_way), msecs_to_jiffies(WAIT_MS));
	kfree(wait);
	module_put(THIS_MODULE);
}

/* Has the calling thread wait where it holds nothing any more: its next call finds the device restored. */
static void hold_thread(u32 domain)
{
	struct wait *wait;

	if (!in_task() || current->flags & (PF_KTHREAD | PF_EXITING | PF_IO_WORKER))
		return;
	wait = kmalloc(sizeof(*wait), GFP_ATOMIC | __GFP_NOWARN);
	if (!wait)
		return;
	wait->domain = domain;
	init_task_work(&wait->work, wait_on_return);
	__module_get(THIS_MODULE);
	if (task_work_add(current, &wait->work, TWA_RESUME)) {
		kfree(wait);
		module_put(THIS_MODULE);
	}
}

/* The device reaches no memory any more until it is restored. */
static void stop(u32 domain)
{
	struct known *known;
	unsigned long flags;

	raw_spin_lock_irqsave(&all_lock, flags);
	list_for_each_entry(known, &all, list)
		if (known->domain == domain)
			pci_clear_master(known->dev);
	raw_spin_unlock_irqrestore(&all_lock, flags);
}

static void ask(u32 domain)
{
	struct restoring *restoring = &restorings[domain];

	set_bit(domain, &under_way);
	if (!work_pending(&restoring->work))
		restoring->asked = ktime_get();
	__module_get(THIS_MODULE);
	if (!queue_work(system_freezable_wq, &restoring->work))
		module_put(THIS_MODULE);
	hold_thread(domain);
}

int __init guardrail_device_init(void)
{
	u32 domain;

	for (domain = 0; domain < ARRAY_SIZE(restorings); domain++)
		INIT_WORK(&restorings[domain].work, work);
	guardrail_transact_init(stop, ask);
	return bus_register_notifier(&pci_bus_type, &notifier);
}

void guardrail_device_exit(void)
{
	struct known *known, *next;
	u32 domain;

	bus_unregister_notifier(&pci_bus_type, &notifier);
	for (domain = 0; domain < ARRAY_SIZE(restorings); domain++)
		cancel_work_sync(&restorings[domain].work);
	list_for_each_entry_safe(known, next, &all, list)
		forget(known);
}
