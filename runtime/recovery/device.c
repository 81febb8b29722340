// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Restoring devices; recovery/device.h describes it.
 *
 * What a driver keeps in memory suffices to set its device up anew: it does so whenever a machine was off for a while. So a
 * checkpoint is the memory, which the undo log restores, and what a bus keeps for the device, which is noted once, when the
 * driver has bound the device. How a device is restored depends on its bus (recovery/bus.h).
 */
#include <linux/device.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/pm_runtime.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/task_work.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "base/symbols.h"
#include "domain/entry.h"
#include "domain/module.h"
#include "recovery/bus.h"
#include "recovery/class.h"
#include "recovery/device.h"
#include "recovery/recover.h"
#include "transact/transaction.h"

/* How long a thread waits until its device is restored. */
#define WAIT_MS 60000

/**
 * struct known - A device whose driver has transactions.
 * @list: Place among all.
 * @bus: Its bus.
 * @dev: The device, which is held.
 * @domain: The driver's domain.
 * @kept: What its bus has noted of it.
 * @round: When it was restored last.
 */
struct known {
	struct list_head list;
	const struct guardrail_bus *bus;
	struct device *dev;
	u32 domain;
	void *kept;
	unsigned int round;
};

/**
 * struct restoring - What restores the devices of a domain.
 * @work: Does it.
 * @asked: When it was asked for.
 * @round: How often it has worked.
 */
struct restoring {
	struct work_struct work;
	ktime_t asked;
	unsigned int round;
};

/**
 * struct watched - A bus, while a module is loaded whose entries can be transactions.
 * @bus: The bus.
 * @type: The kernel's bus; NULL while it is not watched.
 * @module: The module that has it, or NULL.
 * @notifier: Sees devices come and go.
 */
struct watched {
	const struct guardrail_bus *bus;
	struct bus_type *type;
	struct module *module;
	struct notifier_block notifier;
};

static LIST_HEAD(all);
/* Protects the list. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(all_lock);
/* Protects the buses. Taken in process context, with choose_mutex and the kernel's lock of a bus inside. */
static DEFINE_MUTEX(watch_mutex);
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

u32 guardrail_device_domain(const struct device_driver *driver)
{
	const struct guardrail_module *guarded;
	u32 domain;

	rcu_read_lock();
	guarded = driver ? guardrail_guarded_at((unsigned long)driver) : NULL;
	domain = guarded && guarded->n_transacts ? guarded->domain : 0;
	rcu_read_unlock();
	return domain;
}

static void forget(struct known *known)
{
	if (known->kept)
		known->bus->forget(known->kept);
	put_device(known->dev);
	kfree(known);
}

/* Notes a device that its driver has bound. Its lock is held. */
static void note(const struct guardrail_bus *bus, struct device *dev)
{
	struct known *known = kzalloc(sizeof(*known), GFP_KERNEL);
	unsigned long flags;

	if (!known)
		return;
	known->bus = bus;
	known->kept = bus->note ? bus->note(dev) : NULL;
	known->dev = get_device(dev);
	known->domain = guardrail_device_domain(dev->driver);
	/* A device that is bound anew while it is restored is not restored again. */
	known->round = restorings[known->domain].round;
	raw_spin_lock_irqsave(&all_lock, flags);
	list_add_tail(&known->list, &all);
	raw_spin_unlock_irqrestore(&all_lock, flags);
}

/* Takes a device off the list; any device where NULL is asked for. */
static struct known *take(const struct device *dev)
{
	struct known *known, *found = NULL;
	unsigned long flags;

	raw_spin_lock_irqsave(&all_lock, flags);
	list_for_each_entry(known, &all, list) {
		if (!dev || known->dev == dev) {
			found = known;
			list_del(&known->list);
			break;
		}
	}
	raw_spin_unlock_irqrestore(&all_lock, flags);
	return found;
}

static int on_bus(struct notifier_block *block, unsigned long event, void *data)
{
	const struct watched *watched = container_of(block, struct watched, notifier);
	struct device *dev = data;
	struct known *known;

	if (event == BUS_NOTIFY_BOUND_DRIVER && guardrail_device_domain(dev->driver))
		note(watched->bus, dev);
	if (event != BUS_NOTIFY_UNBOUND_DRIVER)
		return NOTIFY_DONE;
	known = take(dev);
	if (known)
		forget(known);
	return NOTIFY_DONE;
}

static struct watched buses[] = {
	{ .bus = &guardrail_bus_pci, .notifier = { .notifier_call = on_bus } },
	{ .bus = &guardrail_bus_usb, .notifier = { .notifier_call = on_bus } },
	{ .bus = &guardrail_bus_virtio, .notifier = { .notifier_call = on_bus } },
	{ .bus = &guardrail_bus_serio, .notifier = { .notifier_call = on_bus } },
};

/* A module that can bind devices of a bus needs the bus, so it is there before. */
static void watch(struct watched *watched)
{
	struct bus_type *type = watched->type ? NULL : (struct bus_type *)guardrail_find_symbol(watched->bus->symbol);

	if (!type)
		return;
	/* The bus stays while it is watched. */
	watched->module = guardrail_module_at((unsigned long)type);
	if (!try_module_get(watched->module))
		return;
	if (bus_register_notifier(type, &watched->notifier))
		module_put(watched->module);
	else
		watched->type = type;
}

static void unwatch(struct watched *watched)
{
	if (!watched->type)
		return;
	bus_unregister_notifier(watched->type, &watched->notifier);
	module_put(watched->module);
	watched->type = NULL;
}

int guardrail_device_module(const struct guardrail_module *guarded, bool comes)
{
	int err = guardrail_transact_module(guarded, comes);
	unsigned int i;

	if (err || !guarded->n_transacts)
		return err;
	mutex_lock(&watch_mutex);
	for (i = 0; i < ARRAY_SIZE(buses); i++) {
		if (comes)
			watch(&buses[i]);
		else if (!guardrail_transacts_any())
			unwatch(&buses[i]);
	}
	mutex_unlock(&watch_mutex);
	return 0;
}

/* Takes the next device of a domain for this round, and holds it. */
static struct device *next_of(u32 domain, unsigned int round, const struct guardrail_bus **bus)
{
	struct device *found = NULL;
	struct known *known;
	unsigned long flags;

	raw_spin_lock_irqsave(&all_lock, flags);
	list_for_each_entry(known, &all, list) {
		if (known->domain == domain && known->round != round) {
			known->round = round;
			*bus = known->bus;
			found = get_device(known->dev);
			break;
		}
	}
	raw_spin_unlock_irqrestore(&all_lock, flags);
	return found;
}

/* What was noted of a device that its driver has, whose lock is held. */
static void *kept_of(const struct device *dev)
{
	struct known *known;
	unsigned long flags;
	void *kept = NULL;

	raw_spin_lock_irqsave(&all_lock, flags);
	list_for_each_entry(known, &all, list)
		if (known->dev == dev)
			kept = known->kept;
	raw_spin_unlock_irqrestore(&all_lock, flags);
	return kept;
}

static const char *restore_quiet(const struct guardrail_bus *bus, struct device *dev)
{
	const struct guardrail_recovery_class *class;
	const char *failed;

	for_each_class_with(class, quiesce)
		class->quiesce(dev);
	failed = bus->restore(dev, kept_of(dev));
	for_each_class_with(class, resume)
		class->resume(dev);
	return failed;
}

/* 0 for a device that its driver has, and whose domain lives. */
static int is_alive(const struct device *dev, u32 domain)
{
	if (guardrail_is_dead(domain))
		return -ESHUTDOWN;
	return guardrail_device_domain(dev->driver) == domain ? 0 : -ENODEV;
}

/* Restores a device, if its driver still has it. Returns NULL, or why it cannot be restored. */
static const char *restore(const struct guardrail_bus *bus, struct device *dev, u32 domain, ktime_t asked, const char *how)
{
	struct device *locked = bus->locked ? bus->locked(dev) : dev;
	const char *failed = NULL;

	device_lock(locked);
	if (!is_alive(dev, domain)) {
		failed = restore_quiet(bus, dev);
		if (failed)
			dev_err(dev, "guardrail: not restored: %s\n", failed);
		else
			dev_info(dev, "guardrail: restored, %lld us after %s\n", ktime_us_delta(ktime_get(), asked), how);
	}
	device_unlock(locked);
	return failed;
}

static void work(struct work_struct *work)
{
	struct restoring *restoring = container_of(work, struct restoring, work);
	u32 domain = restoring - restorings;
	const struct guardrail_bus *bus;
	const char *failed = NULL;
	struct device *dev;
	unsigned int n = 0;

	restoring->round++;
	while (!failed && (dev = next_of(domain, restoring->round, &bus))) {
		failed = restore(bus, dev, domain, restoring->asked, "the fault");
		put_device(dev);
		n++;
	}
	if (!n && !failed)
		failed = "it has no device of a bus that is known";
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
		if (known->domain == domain && known->bus->stop)
			known->bus->stop(known->dev);
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

/* Finds a device that is noted by its name on its bus, and holds it. */
static struct device *find_named(const char *name, const struct guardrail_bus **bus, u32 *domain)
{
	struct device *found = NULL;
	struct known *known;
	unsigned long flags;

	raw_spin_lock_irqsave(&all_lock, flags);
	list_for_each_entry(known, &all, list) {
		if (!strcmp(dev_name(known->dev), name)) {
			*bus = known->bus;
			*domain = known->domain;
			found = get_device(known->dev);
			break;
		}
	}
	raw_spin_unlock_irqrestore(&all_lock, flags);
	return found;
}

/* Notes the configuration anew. The device's lock is held, and so nobody reads what was noted before. */
static int note_anew(const struct guardrail_bus *bus, struct device *dev)
{
	struct known *known;
	unsigned long flags;
	void *kept;

	if (!bus->renews)
		return -EOPNOTSUPP;
	/* A device that sleeps has another configuration. */
	if (pm_runtime_get_sync(dev) < 0) {
		pm_runtime_put_noidle(dev);
		return -EIO;
	}
	kept = bus->note(dev);
	pm_runtime_put(dev);
	if (!kept)
		return -ENOMEM;
	raw_spin_lock_irqsave(&all_lock, flags);
	list_for_each_entry(known, &all, list)
		if (known->dev == dev)
			swap(known->kept, kept);
	raw_spin_unlock_irqrestore(&all_lock, flags);
	if (kept)
		bus->forget(kept);
	return 0;
}

int guardrail_device_checkpoint(const char *name)
{
	const struct guardrail_bus *bus;
	struct device *dev, *locked;
	u32 domain;
	int err;

	dev = find_named(name, &bus, &domain);
	if (!dev)
		return -ENODEV;
	locked = bus->locked ? bus->locked(dev) : dev;
	device_lock(locked);
	err = is_alive(dev, domain);
	/* A device that was stopped has another configuration. */
	if (!err)
		err = test_bit(domain, &under_way) ? -EBUSY : note_anew(bus, dev);
	device_unlock(locked);
	put_device(dev);
	return err;
}

int guardrail_device_restore(const char *name)
{
	const struct guardrail_bus *bus;
	const char *failed;
	struct device *dev;
	u32 domain;
	int err;

	dev = find_named(name, &bus, &domain);
	if (!dev)
		return -ENODEV;
	failed = restore(bus, dev, domain, ktime_get(), "it was asked for");
	err = is_alive(dev, domain);
	if (failed && !strcmp(failed, GUARDRAIL_NO_RESTORE)) {
		err = -EOPNOTSUPP;
	} else if (failed) {
		/* It may have done the half of it. */
		guardrail_recover(domain, failed);
		err = -EIO;
	}
	put_device(dev);
	return err;
}

void __init guardrail_device_init(void)
{
	u32 domain;

	for (domain = 0; domain < ARRAY_SIZE(restorings); domain++)
		INIT_WORK(&restorings[domain].work, work);
	guardrail_transact_init(stop, ask);
}

void guardrail_device_exit(void)
{
	struct known *known;
	u32 domain;

	for (domain = 0; domain < ARRAY_SIZE(restorings); domain++)
		cancel_work_sync(&restorings[domain].work);
	while ((known = take(NULL)))
		forget(known);
}
