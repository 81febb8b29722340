// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * All that a dead domain has is taken from it, without any of its code. First what would call it again (timers, work, polls,
 * interrupts), then what it has registered, at last its memory.
 */
#include <linux/bitops.h>
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-map-ops.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/iommu.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "border/custom.h"
#include "recovery/recover.h"

/* No interrupt has a larger number here. */
#define MAX_IRQ 16384

struct teardown {
	u32 domain;
	const struct guarded_modules *modules;
	struct released *released;
	struct late *late;
};

/* Something to be released later. */
struct piece {
	struct list_head list;
	struct guardrail_held held;
};

bool guardrail_is_of(const void *p, const struct guarded_modules *modules)
{
	unsigned int i;

	for (i = 0; i < modules->n; i++)
		if (within_module((unsigned long)p, modules->module[i]))
			return true;
	return false;
}

static bool owns_driver(const struct device_driver *driver, const struct guarded_modules *modules)
{
	unsigned int i;

	for (i = 0; driver && i < modules->n; i++)
		if (driver->owner == modules->module[i])
			return true;
	return false;
}

/*
 * The kernel offers a frame that was refused again and again, as long as the queue is not stopped, and waits for the end of that when it closes
 * the device.
 */
static int detach(const struct guardrail_held *held, void *data)
{
	if (held->right == GUARDRAIL_OBJECT && held->type == TYPE_NETDEV && held->state) {
		netif_tx_stop_all_queues((struct net_device *)held->start);
		netif_device_detach((struct net_device *)held->start);
	}
	return 0;
}

void guardrail_silence(u32 domain, const struct guarded_modules *modules)
{
	struct pci_dev *dev = NULL;

	guardrail_walk(domain, detach, NULL);
	for_each_pci_dev(dev) {
		if (!owns_driver(dev->dev.driver, modules))
			continue;
		pci_clear_master(dev);
		pci_intx(dev, 0);
	}
}

/*
 * A device that has no driver, and whose memory is reserved by a name in one of the modules: its driver's probe failed because it was ended, or
 * its removal was.
 */
static bool is_left_behind(struct pci_dev *dev, const struct guarded_modules *modules)
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

/* Devices that drivers of the domain have or had; each is held. */
static void find_devices(struct teardown *down)
{
	struct pci_dev *dev = NULL;

	for_each_pci_dev(dev)
		if ((owns_driver(dev->dev.driver, down->modules) || is_left_behind(dev, down->modules)) &&
		    down->late->n_devices < MAX_DEVICES)
			down->late->devices[down->late->n_devices++] = pci_dev_get(dev);
}

static int settle_poll(const struct guardrail_held *held, void *data)
{
	struct napi_struct *napi = (struct napi_struct *)held->start;

	if (held->right != GUARDRAIL_OBJECT || held->type != TYPE_NAPI || !held->state)
		return 0;
	/*
	 * It is scheduled, and on no processor's list, nor disabled: its poll was refused, which has not completed it. That it is on its way to a
	 * list lasts no longer than a moment with interrupts off.
	 */
	if (test_bit(NAPI_STATE_SCHED, &napi->state) && !test_bit(NAPI_STATE_NPSVC, &napi->state) &&
	    list_empty_careful(&napi->poll_list)) {
		msleep(2);
		if (!test_bit(NAPI_STATE_NPSVC, &napi->state) && list_empty_careful(&napi->poll_list))
			clear_bit(NAPI_STATE_SCHED, &napi->state);
	}
	return 0;
}

void guardrail_settle_polls(u32 domain)
{
	guardrail_walk(domain, settle_poll, NULL);
}

static bool cancel(struct work_struct *work)
{
	/* What has no function was never queued, and the kernel warns of whoever cancels it. */
	if (!READ_ONCE(work->func))
		return false;
	if (guardrail_is_delayed(work))
		return cancel_delayed_work_sync(container_of(work, struct delayed_work, work));
	return cancel_work_sync(work);
}

/* The timer of work that can be delayed stays with the work: that would wait for it forever. */
static void stop_timer(struct timer_list *timer, struct released *released)
{
	if (timer->function == delayed_work_timer_fn) {
		released->works += cancel(&container_of(timer, struct delayed_work, timer)->work);
		return;
	}
	released->timers += timer_shutdown_sync(timer);
}

static int stop(const struct guardrail_held *held, void *data)
{
	struct teardown *down = data;

	if (held->right != GUARDRAIL_OBJECT)
		return 0;
	switch (held->type) {
	case TYPE_TIMER:
		stop_timer((struct timer_list *)held->start, down->released);
		break;
	case TYPE_WORK:
		down->released->works += cancel((struct work_struct *)held->start);
		break;
	}
	return 0;
}

static int unregister(const struct guardrail_held *held, void *data)
{
	struct teardown *down = data;

	if (held->right == GUARDRAIL_OBJECT && held->type == TYPE_MISCDEVICE && held->state) {
		misc_deregister((struct miscdevice *)held->start);
		guardrail_put_object(down->domain, held->start, TYPE_MISCDEVICE, 0);
		down->released->miscdevices++;
	}
	if (held->right == GUARDRAIL_OBJECT && held->type == TYPE_NETDEV && held->state) {
		unregister_netdev((struct net_device *)held->start);
		guardrail_put_object(down->domain, held->start, TYPE_NETDEV, 0);
		down->released->netdevs++;
	}
	return 0;
}

static int end_poll(const struct guardrail_held *held, void *data)
{
	struct teardown *down = data;

	if (held->right == GUARDRAIL_OBJECT && held->type == TYPE_NAPI && held->state) {
		struct napi_struct *napi = (struct napi_struct *)held->start;
		unsigned long end = jiffies + 5 * HZ;

		/* It may be on a processor's list until that comes to it. Nothing schedules it any more. */
		while (test_bit(NAPI_STATE_SCHED, &napi->state) && time_before(jiffies, end)) {
			settle_poll(held, data);
			msleep(2);
		}
		if (test_bit(NAPI_STATE_SCHED, &napi->state))
			pr_warn("domain %u: a poll does not end\n", down->domain);
		else
			napi_disable(napi);
		guardrail_put_object(down->domain, held->start, TYPE_NAPI, 0);
	}
	return 0;
}

struct found_drivers {
	const struct guarded_modules *modules;
	struct pci_driver *driver[MAX_MODULES];
	unsigned int n;
};

static int find_driver(struct device_driver *driver, void *data)
{
	struct found_drivers *found = data;

	if (owns_driver(driver, found->modules) && found->n < ARRAY_SIZE(found->driver))
		found->driver[found->n++] = to_pci_driver(driver);
	return 0;
}

/* The devices are taken from their drivers, which are not asked, and with them all that goes with a device. */
static void unbind(const struct guarded_modules *modules)
{
	struct found_drivers found = { .modules = modules };
	unsigned int i;

	bus_for_each_drv(&pci_bus_type, NULL, &found, find_driver);
	for (i = 0; i < found.n; i++)
		pci_unregister_driver(found.driver[i]);
}

/* A handler of the modules, and what it was registered with. */
struct found_handler {
	const struct guarded_modules *modules;
	void *dev_id;
};

static bool is_handler(const struct irqaction *action, void *data)
{
	struct found_handler *found = data;

	found->dev_id = action->dev_id;
	return guardrail_is_of(action->handler, found->modules) || guardrail_is_of(action->thread_fn, found->modules);
}

static void free_irqs(struct teardown *down)
{
	struct found_handler found = { .modules = down->modules };
	unsigned int irq;

	for (irq = 0; irq < MAX_IRQ; irq++)
		while (guardrail_find_action(irq, is_handler, &found)) {
			free_irq(irq, found.dev_id);
			down->released->irqs++;
		}
}

/* What a driver has of a device beside memory. */
static void give_back(struct pci_dev *dev)
{
	int bar;

	pci_free_irq_vectors(dev);
	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++)
		if (pci_resource_len(dev, bar) && dev->resource[bar].child)
			pci_release_region(dev, bar);
	/* Where the device can be reset, it is. */
	if (pci_try_reset_function(dev))
		pci_dbg(dev, "cannot be reset\n");
	while (pci_is_enabled(dev))
		pci_disable_device(dev);
	pci_intx(dev, 1);
}

/* Without memory to note it, it is lost. */
static bool later(struct teardown *down, const struct guardrail_held *held)
{
	struct piece *piece = kmalloc(sizeof(*piece), GFP_KERNEL);

	if (!piece)
		return false;
	piece->held = *held;
	list_add_tail(&piece->list, &down->late->memory);
	return true;
}

/* What lies in memory that is to be released next. */
static int release_objects(const struct guardrail_held *held, void *data)
{
	struct teardown *down = data;

	if (held->right != GUARDRAIL_OBJECT)
		return 0;
	switch (held->type) {
	case TYPE_SKB:
		guardrail_clear_object(down->domain, held->start, TYPE_SKB);
		if (later(down, held))
			down->released->frames++;
		else
			down->released->left++;
		break;
	case TYPE_NETDEV:
		if (held->state)
			break;
		guardrail_clear_object(down->domain, held->start, TYPE_NETDEV);
		free_netdev((struct net_device *)held->start);
		break;
	}
	return 0;
}

/* Memory for a device: without a unit in between that translates, the device's address of it follows from the kernel's. */
static struct device *device_of(const struct late *late, const struct guardrail_held *held)
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
	struct teardown *down = data;

	if (held->right != GUARDRAIL_OWNER)
		return 0;
	if (held->type == KIND_SLAB && guardrail_keeps_allocation(down->domain, held->start, held->len)) {
		down->late->kept = true;
		return 0;
	}
	/* Nobody else is to release it. */
	if (guardrail_clear_owner(down->domain, held->start, held->type))
		return 0;
	switch (held->type) {
	case KIND_IO:
		iounmap((void __iomem *)held->start);
		down->released->mappings++;
		return 0;
	case KIND_HOSTDATA:
	case KIND_PRIVATE:
	case KIND_ELEMENT:
	case KIND_LENT:
	case KIND_MANAGED:
		/* It goes with what it belongs to. */
		return 0;
	case KIND_DMA:
		if (!device_of(down->late, held))
			break;
		fallthrough;
	case KIND_SLAB:
	case KIND_VMALLOC:
	case KIND_PAGE:
	case KIND_PAGES:
	case KIND_FRAG:
		guardrail_clear(down->domain, held->start, held->len);
		if (!later(down, held))
			break;
		down->released->allocations++;
		return 0;
	}
	down->released->left++;
	return 0;
}

static void release_piece(const struct late *late, const struct guardrail_held *held)
{
	void *p = (void *)held->start;

	/* A cache that goes as well does not need its objects as the constructor makes them. */
	if (held->right == GUARDRAIL_OWNER && held->type == KIND_SLAB && !guardrail_construct(late->domain, held->start, held->len) &&
	    (!late->forever || late->kept))
		return;

	if (held->right == GUARDRAIL_OBJECT) {
		dev_kfree_skb_any(p);
		return;
	}
	switch (held->type) {
	case KIND_SLAB:
		kfree(p);
		break;
	case KIND_VMALLOC:
		vfree(p);
		break;
	case KIND_PAGE:
		free_pages(held->start, get_order(held->len));
		break;
	case KIND_PAGES:
		__free_pages(virt_to_page(p), get_order(held->len));
		break;
	case KIND_FRAG:
		page_frag_free(p);
		break;
	case KIND_DMA:
		dma_free_coherent(device_of(late, held), held->len, p,
				  phys_to_dma(device_of(late, held), virt_to_phys(p)));
		break;
	}
}

void guardrail_release_late(struct late *late)
{
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
	if (late->forever && !late->kept)
		guardrail_caches_destroy(late->domain);
}

void guardrail_teardown(u32 domain, const struct guarded_modules *modules, bool forever, struct released *released, struct late *late)
{
	struct teardown *down = kzalloc(sizeof(*down), GFP_KERNEL | __GFP_NOFAIL);
	unsigned int i;

	memset(released, 0, sizeof(*released));
	INIT_LIST_HEAD(&late->memory);
	late->n_devices = 0;
	late->domain = domain;
	late->forever = forever;
	late->kept = false;
	guardrail_caches_dead(domain);
	*down = (struct teardown){ .domain = domain, .modules = modules, .released = released, .late = late };
	find_devices(down);
	released->devices = late->n_devices;
	guardrail_silence(domain, modules);
	guardrail_walk(domain, stop, down);
	/* Functions that wait for a grace period come, and are refused. */
	rcu_barrier();
	guardrail_settle_polls(domain);
	guardrail_walk(domain, unregister, down);
	guardrail_walk(domain, end_poll, down);
	unbind(modules);
	guardrail_forget_fs_types(domain);
	free_irqs(down);
	guardrail_irqs_forget(domain);
	for (i = 0; i < late->n_devices; i++)
		give_back(late->devices[i]);
	guardrail_walk(domain, release_objects, down);
	guardrail_walk(domain, release_memory, down);
	/* The module's own variables, and what has gone with the devices. */
	guardrail_clear_domain(domain);
	kfree(down);
}
