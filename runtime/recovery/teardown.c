// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Teardown. First it stops everything that would call the domain again (timers, work, polls,
 * interrupts). Then it unregisters what the domain has registered, and at last it frees the
 * domain's memory.
 */
#include <linux/bitops.h>
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-map-ops.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "base/address.h"
#include "base/limits.h"
#include "domain/interrupts.h"
#include "recovery/class.h"
#include "recovery/teardown.h"
#include "recovery/undo.h"
#include "rights/kinds.h"
#include "rights/object.h"

/* The largest number of an interrupt. */
#define MAX_IRQ 16384

/**
 * struct piece - Something to be released later.
 * @list: Place in the list of a struct guardrail_late.
 * @held: What it is.
 */
struct piece {
	struct list_head list;
	struct guardrail_held held;
};

static bool owns_driver(const struct device_driver *driver, const struct guardrail_modules *modules)
{
	unsigned int i;

	for (i = 0; driver && i < modules->n; i++)
		if (driver->owner == modules->module[i])
			return true;
	return false;
}

void guardrail_silence(u32 domain, const struct guardrail_modules *modules)
{
	const struct guardrail_recovery_class *class;
	struct pci_dev *dev = NULL;

	for_each_class_with(class, silence)
		class->silence(domain);
	for_each_pci_dev(dev) {
		if (!owns_driver(dev->dev.driver, modules))
			continue;
		pci_clear_master(dev);
		pci_intx(dev, 0);
	}
}

/*
 * A device without a driver whose memory is reserved by a name in one of the modules: an entry that probed or removed
 * it was ended.
 */
static bool is_left_behind(struct pci_dev *dev, const struct guardrail_modules *modules)
{
	int bar;

	if (dev->dev.driver)
		return false;
	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		const struct resource *reserved = dev->resource[bar].child;

		if (reserved && guardrail_is_of(reserved->name, modules))
			return true;
	}
	return false;
}

/* Finds and holds the devices that drivers of the domain have or had. */
static void find_devices(struct guardrail_teardown *down)
{
	struct pci_dev *dev = NULL;

	for_each_pci_dev(dev) {
		if (!owns_driver(dev->dev.driver, down->modules) && !is_left_behind(dev, down->modules))
			continue;
		if (down->late->n_devices < MAX_DEVICES)
			down->late->devices[down->late->n_devices++] = pci_dev_get(dev);
		else
			guardrail_limit_reached(GUARDRAIL_LIMIT_DEVICES);
	}
}

static bool cancel(struct work_struct *work)
{
	/* Work without a function was never queued, and the kernel warns if it is canceled. */
	if (!READ_ONCE(work->func))
		return false;
	if (guardrail_is_delayed(work))
		return cancel_delayed_work_sync(container_of(work, struct delayed_work, work));
	return cancel_work_sync(work);
}

/* A timer of delayed work stays with its work, which would wait for it forever. */
static void stop_timer(struct timer_list *timer, struct guardrail_released *released)
{
	if (timer->function == delayed_work_timer_fn) {
		released->works += cancel(&container_of(timer, struct delayed_work, timer)->work);
		return;
	}
	released->timers += timer_shutdown_sync(timer);
}

static int stop(const struct guardrail_held *held, void *data)
{
	struct guardrail_teardown *down = data;

	if (held->right != GUARDRAIL_OBJECT)
		return 0;
	switch (held->type) {
	case GUARDRAIL_TYPE_TIMER:
		stop_timer((struct timer_list *)held->start, down->released);
		break;
	case GUARDRAIL_TYPE_WORK:
		down->released->works += cancel((struct work_struct *)held->start);
		break;
	}
	return 0;
}

/**
 * struct found_drivers - PCI drivers of some modules.
 * @modules: The modules.
 * @driver: The drivers.
 * @n: How many there are.
 */
struct found_drivers {
	const struct guardrail_modules *modules;
	struct pci_driver *driver[MAX_MODULES];
	unsigned int n;
};

static int find_driver(struct device_driver *driver, void *data)
{
	struct found_drivers *found = data;

	if (!owns_driver(driver, found->modules))
		return 0;
	if (found->n < ARRAY_SIZE(found->driver))
		found->driver[found->n++] = to_pci_driver(driver);
	else
		guardrail_limit_reached(GUARDRAIL_LIMIT_DRIVERS);
	return 0;
}

/*
 * Takes the devices from their drivers without calling these, and releases all that belongs to a
 * device.
 */
static void unbind(const struct guardrail_modules *modules)
{
	struct found_drivers found = { .modules = modules };
	unsigned int i;

	bus_for_each_drv(&pci_bus_type, NULL, &found, find_driver);
	for (i = 0; i < found.n; i++)
		pci_unregister_driver(found.driver[i]);
}

/**
 * struct found_handler - An interrupt handler of some modules.
 * @modules: The modules.
 * @dev_id: What the handler is called with.
 */
struct found_handler {
	const struct guardrail_modules *modules;
	void *dev_id;
};

static bool is_handler(const struct irqaction *action, void *data)
{
	struct found_handler *found = data;

	found->dev_id = action->dev_id;
	return guardrail_is_of(action->handler, found->modules) || guardrail_is_of(action->thread_fn, found->modules);
}

/* Frees the interrupts that the domain has requested itself. Their handlers may be those of a library. */
static void free_requested(struct guardrail_teardown *down)
{
	unsigned int irq;
	void *dev_id;

	while (guardrail_irq_take(down->domain, &irq, &dev_id)) {
		if (!guardrail_irq_is(irq, dev_id))
			continue;
		free_irq(irq, dev_id);
		down->released->irqs++;
	}
}

/* Frees all others with a handler of the modules. */
static void free_irqs(struct guardrail_teardown *down)
{
	struct found_handler found = { .modules = down->modules };
	unsigned int irq;

	for (irq = 0; irq < MAX_IRQ; irq++)
		while (guardrail_find_action(irq, is_handler, &found)) {
			free_irq(irq, found.dev_id);
			down->released->irqs++;
		}
}

/*
 * Ends what a device has under way. What a USB host would still write has been given back with its requests, so a host that
 * cannot be reset by its PCI function is stopped as after the firmware, by the kernel's quirk_usb_early_handoff().
 */
static void reset(struct pci_dev *dev)
{
	if (!pci_try_reset_function(dev))
		return;
	pci_dbg(dev, "cannot be reset\n");
	if (dev->class >> 8 == PCI_CLASS_SERIAL_USB)
		pci_fixup_device(pci_fixup_final, dev);
}

/* Releases a driver's resources of a device other than memory. */
static void give_back(struct pci_dev *dev)
{
	int bar;

	pci_free_irq_vectors(dev);
	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++)
		if (pci_resource_len(dev, bar) && dev->resource[bar].child)
			pci_release_region(dev, bar);
	reset(dev);
	while (pci_is_enabled(dev))
		pci_disable_device(dev);
	pci_intx(dev, 1);
}

bool guardrail_release_later(struct guardrail_teardown *down, const struct guardrail_held *held)
{
	struct piece *piece = kmalloc(sizeof(*piece), GFP_KERNEL);

	if (!piece)
		return false;
	piece->held = *held;
	list_add_tail(&piece->list, &down->late->memory);
	return true;
}

/* Calls a member of each class that has it with what the domain holds. */
static int unregister(const struct guardrail_held *held, void *data)
{
	const struct guardrail_recovery_class *class;

	for_each_class_with(class, unregister)
		class->unregister(held, data);
	return 0;
}

static int end_use(const struct guardrail_held *held, void *data)
{
	const struct guardrail_recovery_class *class;

	for_each_class_with(class, end_use)
		class->end_use(held, data);
	return 0;
}

/* Objects lie in memory that is released next. */
static int release_object(const struct guardrail_held *held, void *data)
{
	const struct guardrail_recovery_class *class;

	if (held->right != GUARDRAIL_OBJECT)
		return 0;
	for_each_class_with(class, release)
		class->release(held, data);
	return 0;
}

static bool is_kept(u32 domain, const struct guardrail_held *held)
{
	const struct guardrail_recovery_class *class;

	for_each_class_with(class, keeps)
		if (class->keeps(domain, held->start, held->len))
			return true;
	return false;
}

/* The device that memory for DMA belongs to, or NULL. Without an IOMMU, the bus address follows from the kernel's. */
static struct device *device_of(const struct guardrail_late *late, const struct guardrail_held *held)
{
	struct device *dev;

	if (late->n_devices != 1)
		return NULL;
	dev = &late->devices[0]->dev;
	if (device_iommu_mapped(dev) || get_dma_ops(dev) || is_vmalloc_addr((void *)held->start))
		return NULL;
	return dev;
}

static int release_memory(const struct guardrail_held *held, void *data)
{
	struct guardrail_teardown *down = data;

	if (held->right != GUARDRAIL_OWNER)
		return 0;
	if (held->type == GUARDRAIL_KIND_SLAB && is_kept(down->domain, held)) {
		down->late->kept = true;
		return 0;
	}
	/* From here on no other code releases it. */
	if (guardrail_disown(down->domain, held->start, held->type))
		return 0;
	switch (held->type) {
	case GUARDRAIL_KIND_IO:
		iounmap((void __iomem *)held->start);
		down->released->mappings++;
		return 0;
	case GUARDRAIL_KIND_HOSTDATA:
	case KIND_PRIVATE:
	case KIND_ELEMENT:
	case KIND_LENT:
	case GUARDRAIL_KIND_MANAGED:
	case GUARDRAIL_KIND_POOLED:
		/* It is freed together with what it belongs to. */
		return 0;
	case GUARDRAIL_KIND_DMA:
		if (!device_of(down->late, held))
			break;
		fallthrough;
	case GUARDRAIL_KIND_SLAB:
	case GUARDRAIL_KIND_VMALLOC:
	case GUARDRAIL_KIND_PAGE:
	case KIND_PAGES:
	case GUARDRAIL_KIND_FRAG:
		guardrail_revoke(down->domain, held->start, held->len);
		if (!guardrail_release_later(down, held))
			break;
		down->released->allocations++;
		return 0;
	}
	down->released->left++;
	return 0;
}

static void free_object(const struct guardrail_held *held)
{
	const struct guardrail_recovery_class *class;

	for_each_class_with(class, free)
		if (class->free(held))
			return;
}

static bool prepare_free(u32 domain, const struct guardrail_held *held)
{
	const struct guardrail_recovery_class *class;
	bool can = true;

	for_each_class_with(class, prepare_free)
		can &= class->prepare_free(domain, held->start, held->len);
	return can;
}

static void release_piece(const struct guardrail_late *late, const struct guardrail_held *held)
{
	void *p = (void *)held->start;

	if (held->right == GUARDRAIL_OBJECT) {
		free_object(held);
		return;
	}
	/* A slab cache that is destroyed as well does not need its objects as the constructor makes them. */
	if (held->type == GUARDRAIL_KIND_SLAB && !prepare_free(late->domain, held) && (!late->forever || late->kept))
		return;
	switch (held->type) {
	case GUARDRAIL_KIND_SLAB:
		kfree(p);
		break;
	case GUARDRAIL_KIND_VMALLOC:
		vfree(p);
		break;
	case GUARDRAIL_KIND_PAGE:
		free_pages(held->start, get_order(held->len));
		break;
	case KIND_PAGES:
		__free_pages(virt_to_page(p), get_order(held->len));
		break;
	case GUARDRAIL_KIND_FRAG:
		page_frag_free(p);
		break;
	case GUARDRAIL_KIND_DMA:
		dma_free_coherent(device_of(late, held), held->len, p,
				  phys_to_dma(device_of(late, held), virt_to_phys(p)));
		break;
	}
}

void guardrail_release_late(struct guardrail_late *late)
{
	const struct guardrail_recovery_class *class;
	struct piece *piece, *next;
	unsigned int i;

	for (i = 0; i < late->n_devices; i++)
		if (!late->devices[i]->dev.driver)
			pci_clear_master(late->devices[i]);
	list_for_each_entry_safe(piece, next, &late->memory, list) {
		release_piece(late, &piece->held);
		kfree(piece);
	}
	for (i = 0; i < late->n_devices; i++)
		pci_dev_put(late->devices[i]);
	if (!late->forever || late->kept)
		return;
	for_each_class_with(class, end_teardown)
		class->end_teardown(late->domain);
}

/* Stops what would call the domain again: timers, work, callbacks of RCU, polls. */
static void stop_calls(struct guardrail_teardown *down)
{
	const struct guardrail_recovery_class *class;

	guardrail_walk(down->domain, stop, down);
	/* Functions that wait for a grace period are called now, and refused. */
	rcu_barrier();
	for_each_class_with(class, settle)
		class->settle(down->domain);
}

/* Unregisters what the domain has registered. False where the kernel continues to use some of it. */
static bool unregister_all(struct guardrail_teardown *down)
{
	const struct guardrail_recovery_class *class;

	if (!guardrail_undo(down->domain))
		return false;
	guardrail_walk(down->domain, unregister, down);
	guardrail_walk(down->domain, end_use, down);
	/* Some devices give their interrupts back when they lose their driver. */
	free_requested(down);
	unbind(down->modules);
	for_each_class_with(class, release_devices)
		class->release_devices(down->domain);
	for_each_class_with(class, forget_types)
		class->forget_types(down->domain);
	free_irqs(down);
	return true;
}

bool guardrail_teardown(u32 domain, const struct guardrail_modules *modules, bool forever,
			struct guardrail_released *released, struct guardrail_late *late)
{
	struct guardrail_teardown *down = kzalloc(sizeof(*down), GFP_KERNEL | __GFP_NOFAIL);
	const struct guardrail_recovery_class *class;
	unsigned int i;
	bool done;

	memset(released, 0, sizeof(*released));
	INIT_LIST_HEAD(&late->memory);
	late->n_devices = 0;
	late->domain = domain;
	late->forever = forever;
	late->kept = false;
	for_each_class_with(class, begin_teardown)
		class->begin_teardown(domain);
	*down = (struct guardrail_teardown){ .domain = domain, .modules = modules, .released = released, .late = late };
	find_devices(down);
	released->devices = late->n_devices;
	guardrail_silence(domain, modules);
	stop_calls(down);
	done = unregister_all(down);
	if (!done)
		goto out;
	for (i = 0; i < late->n_devices; i++)
		give_back(late->devices[i]);
	guardrail_walk(domain, release_object, down);
	guardrail_walk(domain, release_memory, down);
	/* This revokes the module's own variables, and the memory that belonged to the devices. */
	guardrail_revoke_all(domain);
out:
	kfree(down);
	return done;
}
