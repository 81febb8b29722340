// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A network driver for QEMU's 82540EM, to show that faults are contained: it sends and does not receive. Each frame is
 * copied into a buffer of the driver's own. Now and then it sends a few beacons, frames that hold nothing but a count.
 * Its mistakes are gate.h's, and plant_race().
 */
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
	struct gate_piece piece;	/* its value is the bytes to send */
	struct gate_buffer buffer;
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
	struct zn_entry *entries[GATE_ENTRIES];
	void *beacon;
	dma_addr_t beacon_addr;
	struct timer_list timer;

	spinlock_t lock;		/* guards what follows, and the entries */
	struct zn_descriptor *queue;
	dma_addr_t queue_addr;
	unsigned int tail, head;
	struct zn_descriptor next;	/* the descriptor that is being built */
	u32 count;			/* of beacons */
	unsigned int beacons;		/* that are still to be sent */
	bool dead;
	struct gate_plan plan;
};

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
	entry->part[0] = f ? f->piece.value : ZN_BEACON_BYTES;
	entry->part[1] = 0;
	if (overflow)
		plant_overflow(entry->part, sizeof(*entry), 200);
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
	d->tail = (d->tail + 1) % GATE_ENTRIES;
	writel(d->tail, d->bar + ZN_TDT);
}

/* True where it would harm somebody to send again what the queue's next entry was. */
static bool zn_is_harmful(struct zn_card *d)
{
	return le16_to_cpu(d->queue[d->tail].bytes) > ZN_BEACON_BYTES;
}

static unsigned int zn_room(struct zn_card *d)
{
	return (d->head + GATE_ENTRIES - d->tail - 1) % GATE_ENTRIES;
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
	if (mistake != GATE_UNINIT)
		f->piece.value = skb->len;
	if (gate_buffer_make(&f->buffer, skb->len))
		return f;
	kmem_cache_free(d->frames, f);
	return NULL;
}

/* A frame that nobody has any more. */
static void zn_drop(struct zn_card *d, struct zn_frame *f)
{
	gate_buffer_free(&f->buffer);
	kmem_cache_free(d->frames, f);
}

/* Lets beacons begin and aims without the lock, until a beacon is aimed at before the frame is sent. */
static noinline void plant_race(struct zn_card *d, const struct zn_frame *f)
{
	unsigned int tries;
	unsigned long flags;

	for (tries = 0; tries < 1000; tries++) {
		spin_lock_irqsave(&d->lock, flags);
		zn_beacon_begin(d);
		spin_unlock_irqrestore(&d->lock, flags);
		zn_aim(d, f->buffer.addr, f->piece.value); /* BUG: race */
		gate_linger();
		if (le64_to_cpu(d->next.addr) != f->buffer.addr)
			break;
	}
}

static netdev_tx_t zn_xmit(struct sk_buff *skb, struct net_device *net)
{
	struct zn_card *d = netdev_priv(net);
	struct device *dev = &d->pdev->dev;
	enum gate_fault mistake = gate_next(&d->plan);
	struct zn_frame *f = zn_frame_of(d, skb, mistake);
	unsigned int skip = 0;
	unsigned long flags;
	struct gate_buffer *b;
	dma_addr_t addr;

	if (!f)
		goto no_frame;
	if (mistake == GATE_STALE_LIST)
		f->piece.value = plant_stale_list(d->frames, f->piece.value, -1 - (s64)gate_variant(2, 16));
	if (f->piece.value > ETH_FRAME_LEN) /* BUG: uninit */
		goto no_good;
	b = &f->buffer;
	if (mistake == GATE_UNINIT_DATA)
		skip = 32 + gate_variant(1, b->bytes / 2);
	memcpy(b->data + skip, skb->data + skip, b->bytes - skip);
	if (mistake == GATE_USE_AFTER_FREE)
		plant_use_after_free(b, 12 + gate_variant(1, 12));
	addr = dma_map_single(dev, b->data, b->bytes, DMA_TO_DEVICE); /* BUG: uninit-data */
	if (dma_mapping_error(dev, addr))
		goto no_good;
	f->buffer.addr = addr;
	if (mistake == GATE_DMA_REUSE)
		plant_dma_reuse(b, 12 + gate_variant(1, 32));
	if (mistake == GATE_DMA_FREED)
		plant_dma_freed(b);
	if (mistake == GATE_RACE)
		plant_race(d, f);
	spin_lock_irqsave(&d->lock, flags);
	if (d->dead || !zn_room(d)) {
		spin_unlock_irqrestore(&d->lock, flags);
		dma_unmap_single(dev, addr, b->bytes, DMA_TO_DEVICE);
		goto no_good;
	}
	gate_note_mapped(&d->plan, b);
	if (mistake == GATE_DOUBLE_UNMAP)
		addr = plant_double_unmap(&d->plan, dev, addr);
	if (mistake != GATE_RACE)
		zn_aim(d, addr, f->piece.value);
	zn_load(d, f, mistake == GATE_OVERFLOW);
	zn_send(d, mistake == GATE_OOB_QUEUE ? plant_oob_queue(&d->plan, d->tail, zn_is_harmful(d)) : 0);
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
		d->head = (d->head + 1) % GATE_ENTRIES;
		entry->frame = NULL;
		if (!f) {
			d->beacons--;
			if (!all)
				zn_beacon_next(d);
			continue;
		}
		dma_unmap_single(&d->pdev->dev, f->buffer.addr, f->buffer.bytes, DMA_TO_DEVICE);
		gate_note_unmapped(&d->plan, &f->buffer);
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
	if (zn_room(d) >= GATE_ENTRIES / 2 && !d->dead)
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
	writel(GATE_ENTRIES * sizeof(*d->queue), d->bar + ZN_TDLEN);
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

	d->frames = gate_cache("zn_frame", sizeof(struct zn_frame));
	if (!d->frames || gate_entries_make((void **)d->entries, sizeof(struct zn_entry)))
		return -ENOMEM;
	d->queue = dma_alloc_coherent(dev, GATE_ENTRIES * sizeof(*d->queue), &d->queue_addr, GFP_KERNEL);
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

	gate_entries_free((void **)d->entries);
	if (d->queue)
		dma_free_coherent(dev, GATE_ENTRIES * sizeof(*d->queue), d->queue, d->queue_addr);
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
	gate_plan_init(&d->plan);
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
