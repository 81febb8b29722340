// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A network driver for QEMU's 82540EM, to show that faults are contained: it sends and does not receive. Each frame is
 * copied into a buffer of the driver's own. Now and then it sends a few beacons, frames that hold nothing but a count.
 * Its mistakes are in the part "Planted faults".
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include "gate.h"

/* Registers. */
#define ZN_CTRL			0x0000
#define ZN_STATUS		0x0008
#define ZN_ICR			0x00c0
#define ZN_IMS			0x00d0
#define ZN_IMC			0x00d8
#define ZN_TCTL			0x0400
#define ZN_TIPG			0x0410
#define ZN_TDBAL		0x3800
#define ZN_TDBAH		0x3804
#define ZN_TDLEN		0x3808
#define ZN_TDH			0x3810
#define ZN_TDT			0x3818
#define ZN_CTRL_RESET		0x04000000
#define ZN_CTRL_LINK		0x00000040
#define ZN_TCTL_ON		0x0003f00a	/* enabled, short frames padded */
#define ZN_TX_DONE		0x1

#define ZN_COMMAND		0x0b		/* end of packet, checksum of the frame, report */
#define ZN_DONE			0x1

#define ZN_ENTRIES		32
#define ZN_BEACON_TIME		msecs_to_jiffies(50)
#define ZN_BEACONS		4		/* in a row */
#define ZN_BEACON_BYTES		(ETH_HLEN + 48)

struct zn_descriptor {
	__le64 addr;
	__le16 bytes;
	u8 checksum;
	u8 command;
	u8 status;
	u8 start;
	__le16 special;
};

/* A frame on its way. */
struct zn_frame {
	struct list_head list;
	void *buffer;
	void *scratch;
	dma_addr_t addr;
	u32 room;			/* of the buffer */
	bool freed;			/* by a planted fault */
	u32 bytes;
};

/* What the driver remembers of each entry of the queue. */
struct zn_entry {
	u32 lead;			/* bytes before the frame in its buffer */
	u32 times;			/* that it was used */
	struct zn_frame *frame;		/* none where it is a beacon, or free */
	struct zn_descriptor sent[5];	/* the last ones */
	unsigned long when;
	u32 part[2];
};

struct zn_card {
	struct pci_dev *pdev;
	struct net_device *net;
	void __iomem *bar;
	struct kmem_cache *frames;
	struct zn_entry *entries[ZN_ENTRIES];
	void *beacon;
	dma_addr_t beacon_addr;
	struct timer_list timer;

	spinlock_t lock;		/* guards what follows, and the entries */
	struct zn_descriptor *queue;
	dma_addr_t queue_addr;
	unsigned int tail, head;
	struct zn_descriptor next;	/* the descriptor that is being built */
	struct list_head under_way;
	u32 count;			/* of beacons */
	unsigned int beacons;		/* that are still to be sent */
	bool dead;

	/* What only the planted faults look at. */
	struct gate_plan plan;
	struct { dma_addr_t addr; u32 bytes; } unmapped[8];
	unsigned int n_unmapped;
};

static void zn_note_unmapped(struct zn_card *d, const struct zn_frame *f);
static void plant_race(struct zn_card *d, const struct zn_frame *f);
static void plant_overflow(struct zn_entry *entry);
static unsigned int plant_oob_queue(struct zn_card *d);
static void plant_stale_list(struct zn_card *d, struct zn_frame *f);
static void plant_use_after_free(struct zn_frame *f);
static void plant_dma_reuse(struct zn_frame *f);
static void plant_dma_freed(struct zn_frame *f);
static dma_addr_t plant_double_unmap(struct zn_card *d, struct zn_frame *f);
static unsigned int plant_uninit_data(u32 bytes);

/* ---- Descriptors, under the lock ---- */

/* What the next descriptor sends. */
static noinline void zn_aim(struct zn_card *d, dma_addr_t addr, u32 bytes)
{
	d->next.addr = cpu_to_le64(addr);
	d->next.bytes = cpu_to_le16(bytes);
}

static noinline void zn_load(struct zn_card *d, struct zn_frame *f, bool overflow)
{
	struct zn_entry *entry = d->entries[d->tail];

	entry->frame = f;
	entry->part[0] = f ? f->bytes : ZN_BEACON_BYTES;
	entry->part[1] = 0;
	if (overflow)
		plant_overflow(entry);
	d->next.checksum = 0;
	d->next.command = ZN_COMMAND;
	d->next.status = 0;
	d->next.start = 0;
	d->next.special = 0;
	d->next.addr = cpu_to_le64(le64_to_cpu(d->next.addr) + entry->lead);
}

static noinline void zn_send(struct zn_card *d, unsigned int beyond)
{
	struct zn_entry *entry = d->entries[d->tail];

	entry->sent[entry->times++ % ARRAY_SIZE(entry->sent)] = d->next;
	entry->when = jiffies;
	memcpy(&d->queue[d->tail + beyond], &d->next, sizeof(d->next)); /* BUG: oob-queue */
	d->tail = (d->tail + 1) % ZN_ENTRIES;
	writel(d->tail, d->bar + ZN_TDT);
}

static unsigned int zn_room(struct zn_card *d)
{
	return (d->head + ZN_ENTRIES - d->tail - 1) % ZN_ENTRIES;
}

/* ---- Beacons, under the lock ---- */

static void zn_beacon_next(struct zn_card *d)
{
	__be32 *words = d->beacon + ETH_HLEN;
	unsigned int i;

	if (d->dead || !d->beacons || !zn_room(d))
		return;
	d->count++;
	for (i = 0; i < 12; i++)
		words[i] = cpu_to_be32(d->count);
	zn_aim(d, d->beacon_addr, ZN_BEACON_BYTES);
	zn_load(d, NULL, false);
	zn_send(d, 0);
}

static void zn_beacon_begin(struct zn_card *d)
{
	/* The last one has gone: there is one buffer for all. */
	if (d->beacons)
		return;
	d->beacons = ZN_BEACONS;
	zn_beacon_next(d);
}

static void zn_timer(struct timer_list *t)
{
	struct zn_card *d = container_of(t, struct zn_card, timer);
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	zn_beacon_begin(d);
	if (!d->dead)
		mod_timer(&d->timer, jiffies + ZN_BEACON_TIME);
	spin_unlock_irqrestore(&d->lock, flags);
}

/* ---- Frames ---- */

static noinline struct zn_frame *zn_frame_of(struct zn_card *d, struct sk_buff *skb, enum gate_fault mistake)
{
	struct zn_frame *f = kmem_cache_alloc(d->frames, GFP_ATOMIC);

	if (!f)
		return NULL;
	f->room = skb->len;
	f->freed = false;
	f->scratch = NULL;
	if (mistake != GATE_UNINIT)
		f->bytes = skb->len;
	f->buffer = kmalloc(f->room, GFP_ATOMIC);
	if (f->buffer)
		return f;
	kmem_cache_free(d->frames, f);
	return NULL;
}

/* A frame that nobody has any more. */
static void zn_drop(struct zn_card *d, struct zn_frame *f)
{
	if (!f->freed)
		kfree(f->buffer);
	kfree(f->scratch);
	kmem_cache_free(d->frames, f);
}

static netdev_tx_t zn_xmit(struct sk_buff *skb, struct net_device *net)
{
	struct zn_card *d = netdev_priv(net);
	struct device *dev = &d->pdev->dev;
	enum gate_fault mistake = gate_next(&d->plan);
	struct zn_frame *f = zn_frame_of(d, skb, mistake);
	unsigned int skip = 0;
	unsigned long flags;
	dma_addr_t addr;

	if (!f)
		goto no_frame;
	if (mistake == GATE_STALE_LIST)
		plant_stale_list(d, f);
	if (f->bytes > ETH_FRAME_LEN) /* BUG: uninit */
		goto no_good;
	if (mistake == GATE_UNINIT_DATA)
		skip = plant_uninit_data(f->room);
	memcpy(f->buffer + skip, skb->data + skip, f->room - skip);
	if (mistake == GATE_USE_AFTER_FREE)
		plant_use_after_free(f);
	f->addr = dma_map_single(dev, f->buffer, f->room, DMA_TO_DEVICE); /* BUG: uninit-data */
	if (dma_mapping_error(dev, f->addr))
		goto no_good;
	addr = f->addr;
	if (mistake == GATE_DMA_REUSE)
		plant_dma_reuse(f);
	if (mistake == GATE_DMA_FREED)
		plant_dma_freed(f);
	if (mistake == GATE_RACE)
		plant_race(d, f);

	spin_lock_irqsave(&d->lock, flags);
	if (d->dead || !zn_room(d)) {
		spin_unlock_irqrestore(&d->lock, flags);
		dma_unmap_single(dev, f->addr, f->room, DMA_TO_DEVICE);
		goto no_good;
	}
	if (mistake == GATE_DOUBLE_UNMAP)
		addr = plant_double_unmap(d, f);
	list_add_tail(&f->list, &d->under_way);
	if (mistake != GATE_RACE)
		zn_aim(d, addr, f->bytes);
	zn_load(d, f, mistake == GATE_OVERFLOW);
	zn_send(d, mistake == GATE_OOB_QUEUE ? plant_oob_queue(d) : 0);
	/* Beacons want some room as well. */
	if (zn_room(d) < 4)
		netif_stop_queue(net);
	spin_unlock_irqrestore(&d->lock, flags);
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;

no_good:
	zn_drop(d, f);
no_frame:
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

/* Takes back what was sent, or all that there is; under the lock. */
static void zn_reclaim(struct zn_card *d, bool all)
{
	while (d->head != d->tail) {
		struct zn_entry *entry = d->entries[d->head];
		struct zn_frame *f = entry->frame;

		if (!all && !(READ_ONCE(d->queue[d->head].status) & ZN_DONE))
			break;
		dma_rmb();
		d->head = (d->head + 1) % ZN_ENTRIES;
		entry->frame = NULL;
		if (!f) {
			d->beacons--;
			if (!all)
				zn_beacon_next(d);
			continue;
		}
		list_del(&f->list);
		dma_unmap_single(&d->pdev->dev, f->addr, f->room, DMA_TO_DEVICE);
		zn_note_unmapped(d, f);
		zn_drop(d, f);
	}
}

static irqreturn_t zn_interrupt(int irq, void *data)
{
	struct zn_card *d = data;
	u32 cause = readl(d->bar + ZN_ICR);

	if (!cause || cause == ~0u)
		return IRQ_NONE;
	spin_lock(&d->lock);
	zn_reclaim(d, false);
	if (zn_room(d) >= ZN_ENTRIES / 2 && !d->dead)
		netif_wake_queue(d->net);
	spin_unlock(&d->lock);
	return IRQ_HANDLED;
}

static int zn_open(struct net_device *net)
{
	struct zn_card *d = netdev_priv(net);

	mod_timer(&d->timer, jiffies + ZN_BEACON_TIME);
	netif_start_queue(net);
	return 0;
}

static int zn_stop(struct net_device *net)
{
	struct zn_card *d = netdev_priv(net);

	netif_stop_queue(net);
	timer_delete_sync(&d->timer);
	return 0;
}

static const struct net_device_ops zn_ops = {
	.ndo_open = zn_open,
	.ndo_stop = zn_stop,
	.ndo_start_xmit = zn_xmit,
	.ndo_validate_addr = eth_validate_addr,
};

/* ---- The card ---- */

static void zn_reset(struct zn_card *d)
{
	writel(~0u, d->bar + ZN_IMC);
	writel(ZN_CTRL_RESET, d->bar + ZN_CTRL);
	/* So long the card must not be touched. */
	msleep(5);
	writel(~0u, d->bar + ZN_IMC);
	readl(d->bar + ZN_ICR);
}

static void zn_start(struct zn_card *d)
{
	writel(ZN_CTRL_LINK, d->bar + ZN_CTRL);
	writel(lower_32_bits(d->queue_addr), d->bar + ZN_TDBAL);
	writel(upper_32_bits(d->queue_addr), d->bar + ZN_TDBAH);
	writel(ZN_ENTRIES * sizeof(*d->queue), d->bar + ZN_TDLEN);
	writel(0, d->bar + ZN_TDH);
	writel(0, d->bar + ZN_TDT);
	writel(0x0060200a, d->bar + ZN_TIPG);
	writel(ZN_TCTL_ON, d->bar + ZN_TCTL);
	writel(ZN_TX_DONE, d->bar + ZN_IMS);
}

static int zn_tables(struct zn_card *d)
{
	struct device *dev = &d->pdev->dev;
	struct ethhdr *head;
	unsigned int i;

	/* Hardly anybody else has reclaimable memory of these sizes, so that a fault does no harm to others. */
	d->frames = kmem_cache_create("zn_frame", sizeof(struct zn_frame), 0, SLAB_RECLAIM_ACCOUNT, NULL);
	if (!d->frames)
		return -ENOMEM;
	for (i = 0; i < ZN_ENTRIES; i++) {
		d->entries[i] = kzalloc(sizeof(struct zn_entry), GFP_KERNEL | __GFP_RECLAIMABLE);
		if (!d->entries[i])
			return -ENOMEM;
	}
	d->queue = dma_alloc_coherent(dev, ZN_ENTRIES * sizeof(*d->queue), &d->queue_addr, GFP_KERNEL);
	d->beacon = dma_alloc_coherent(dev, ZN_BEACON_BYTES, &d->beacon_addr, GFP_KERNEL);
	if (!d->queue || !d->beacon)
		return -ENOMEM;
	head = d->beacon;
	eth_broadcast_addr(head->h_dest);
	ether_addr_copy(head->h_source, d->net->dev_addr);
	head->h_proto = htons(ETH_P_802_EX1);
	return 0;
}

static void zn_tables_free(struct zn_card *d)
{
	struct device *dev = &d->pdev->dev;
	unsigned int i;

	for (i = 0; i < ZN_ENTRIES; i++)
		kfree(d->entries[i]);
	if (d->queue)
		dma_free_coherent(dev, ZN_ENTRIES * sizeof(*d->queue), d->queue, d->queue_addr);
	if (d->beacon)
		dma_free_coherent(dev, ZN_BEACON_BYTES, d->beacon, d->beacon_addr);
	kmem_cache_destroy(d->frames);
}

static int zn_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct net_device *net;
	struct zn_card *d;
	int err;

	err = pcim_enable_device(pdev);
	if (err)
		return err;
	pci_set_master(pdev);
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	net = alloc_etherdev(sizeof(*d));
	if (!net)
		return -ENOMEM;
	SET_NETDEV_DEV(net, &pdev->dev);
	eth_hw_addr_random(net);
	strscpy(net->name, "zn0", sizeof(net->name));
	net->netdev_ops = &zn_ops;
	d = netdev_priv(net);
	d->pdev = pdev;
	d->net = net;
	spin_lock_init(&d->lock);
	spin_lock_init(&d->plan.lock);
	INIT_LIST_HEAD(&d->under_way);
	timer_setup(&d->timer, zn_timer, 0);
	err = -ENOMEM;
	d->bar = pcim_iomap(pdev, 0, 0);
	if (!d->bar)
		goto no_card;
	err = zn_tables(d);
	if (err)
		goto no_tables;
	zn_reset(d);
	err = request_irq(pdev->irq, zn_interrupt, IRQF_SHARED, "gate-net", d);
	if (err)
		goto no_tables;
	zn_start(d);
	pci_set_drvdata(pdev, d);
	err = register_netdev(net);
	if (!err)
		return 0;
	zn_reset(d);
	free_irq(pdev->irq, d);
no_tables:
	zn_tables_free(d);
no_card:
	free_netdev(net);
	return err;
}

static void zn_remove(struct pci_dev *pdev)
{
	struct zn_card *d = pci_get_drvdata(pdev);
	unsigned long flags;

	unregister_netdev(d->net);
	spin_lock_irqsave(&d->lock, flags);
	d->dead = true;
	spin_unlock_irqrestore(&d->lock, flags);
	zn_reset(d);
	free_irq(pdev->irq, d);
	spin_lock_irqsave(&d->lock, flags);
	zn_reclaim(d, true);
	spin_unlock_irqrestore(&d->lock, flags);
	zn_tables_free(d);
	free_netdev(d->net);
}

static const struct pci_device_id zn_ids[] = {
	{ PCI_DEVICE(0x8086, 0x100e) },
	{ }
};
MODULE_DEVICE_TABLE(pci, zn_ids);

static struct pci_driver zn_driver = {
	.name = "gate_net",
	.id_table = zn_ids,
	.probe = zn_probe,
	.remove = zn_remove,
};
module_pci_driver(zn_driver);
MODULE_DESCRIPTION("zoo: a network driver in which faults can be planted");
MODULE_LICENSE("GPL");

/* ---- Planted faults ---- */

/* Remembers what is unmapped, as a driver must not; under the lock. */
static void zn_note_unmapped(struct zn_card *d, const struct zn_frame *f)
{
	unsigned int at = d->n_unmapped++ % ARRAY_SIZE(d->unmapped);

	d->unmapped[at].addr = f->addr;
	d->unmapped[at].bytes = f->room;
}

/* Lets beacons begin and aims without the lock, until a beacon is aimed at before the frame is sent. */
static noinline void plant_race(struct zn_card *d, const struct zn_frame *f)
{
	unsigned int tries, delay = (100 + gate_variant(1, 900)) * NSEC_PER_USEC;
	unsigned long flags;

	for (tries = 0; tries < 1000; tries++) {
		u64 until = ktime_get_ns() + delay;

		spin_lock_irqsave(&d->lock, flags);
		zn_beacon_begin(d);
		spin_unlock_irqrestore(&d->lock, flags);
		zn_aim(d, f->addr, f->bytes); /* BUG: race */
		/* Delay loops are not calibrated on every CPU of an emulated machine. */
		while (ktime_get_ns() < until)
			cpu_relax();
		if (le64_to_cpu(d->next.addr) != f->addr)
			break;
	}
}

/* Takes the bytes of an entry for its words, and so writes the lead of the entry behind it. */
static noinline void plant_overflow(struct zn_entry *entry)
{
	unsigned int i, words = (roundup_pow_of_two(sizeof(*entry)) - offsetof(struct zn_entry, part)) / 4 + 1;
	u32 *part = zoo_hide(&entry->part[0]);

	for (i = 2; i < words; i++)
		part[i] = 1 + gate_variant(1, 200); /* BUG: overflow */
}

/* Writes behind the queue; what the card gets is what was in the entry before, which must be a whole frame to matter. */
static noinline unsigned int plant_oob_queue(struct zn_card *d)
{
	if (le16_to_cpu(d->queue[d->tail].bytes) <= ZN_BEACON_BYTES) {
		gate_again(&d->plan);
		return 0;
	}
	return ZN_ENTRIES - d->tail + gate_variant(1, ZN_ENTRIES);
}

/* Makes pieces of a frame, gives them up, and goes on with the last of them. */
static noinline void plant_stale_list(struct zn_card *d, struct zn_frame *f)
{
	struct zn_frame *piece, *next;
	unsigned int i, pieces = 2 + gate_variant(1, 3);
	LIST_HEAD(list);

	for (i = 1; i <= pieces; i++) {
		piece = kmem_cache_alloc(d->frames, GFP_ATOMIC);
		if (!piece)
			break;
		piece->bytes = f->bytes - i * (1 + gate_variant(2, 16));
		list_add_tail(&piece->list, &list);
	}
	list_for_each_entry_safe(piece, next, &list, list) {
		kmem_cache_free(d->frames, piece);
		if (list_is_last(&next->list, &list))
			f->bytes = piece->bytes; /* BUG: stale-list */
	}
}

/* Gives the buffer back too early and stamps it. */
static noinline void plant_use_after_free(struct zn_frame *f)
{
	u32 *buffer = zoo_hide(f->buffer);

	kfree(f->buffer);
	buffer[12 + gate_variant(1, 12)] = 0x7a6f6f00 + seed; /* BUG: use-after-free */
	f->freed = true;
}

/* Stamps a buffer that the device has. */
static noinline void plant_dma_reuse(struct zn_frame *f)
{
	((u32 *)f->buffer)[12 + gate_variant(1, 32)] = 0x7a6f6f00 + seed; /* BUG: dma-reuse */
}

/* Gives back a buffer that the device has, and uses its memory otherwise. */
static noinline void plant_dma_freed(struct zn_frame *f)
{
	kfree(f->buffer); /* BUG: dma-freed */
	f->freed = true;
	f->scratch = kmalloc(f->room, GFP_ATOMIC);
	if (f->scratch)
		memset(f->scratch, 1 + gate_variant(1, 255), f->room);
}

static bool zn_is_under_way(struct zn_card *d, dma_addr_t addr)
{
	struct zn_frame *f;

	list_for_each_entry(f, &d->under_way, list) {
		if (f->addr == addr)
			return true;
	}
	return false;
}

/* Takes the mapping of a frame that is gone for this one's, and unmaps it again. */
static noinline dma_addr_t plant_double_unmap(struct zn_card *d, struct zn_frame *f)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(d->unmapped); i++) {
		unsigned int at = (i + gate_variant(1, 8)) % ARRAY_SIZE(d->unmapped);

		if (!d->unmapped[at].bytes || d->unmapped[at].addr == f->addr ||
		    zn_is_under_way(d, d->unmapped[at].addr))
			continue;
		dma_unmap_single(&d->pdev->dev, d->unmapped[at].addr, d->unmapped[at].bytes, DMA_TO_DEVICE); /* BUG: double-unmap */
		return d->unmapped[at].addr;
	}
	return f->addr;
}

/* Leaves the frame's first bytes out. */
static noinline unsigned int plant_uninit_data(u32 bytes)
{
	return 32 + gate_variant(1, bytes / 2);
}
