// SPDX-License-Identifier: GPL-2.0-or-later
/* The rings of the RTL8139C+. The driver alone touches them, so they need no lock. */
#include <linux/dma-mapping.h>
#include <linux/if_vlan.h>
#include <linux/ip.h>

#include "rtl8139cp.h"

/* --- Packets to receive. */

static u32 end_of(unsigned int i, unsigned int size)
{
	return i == size - 1 ? END : 0;
}

/* Hands a descriptor to the device. */
static void lend(struct rtl *r, unsigned int i)
{
	r->rx[i].tag = 0;
	r->rx[i].address = cpu_to_le64(r->rx_bus[i]);
	/* The device must not see its mark before the address. */
	dma_wmb();
	r->rx[i].status = cpu_to_le32(OWN | end_of(i, RX_RING) | r->rx_size);
}

/* A new packet to receive into, or NULL. */
static struct sk_buff *fresh(struct rtl *r, dma_addr_t *bus)
{
	struct sk_buff *skb = active_ethernet_skb(r->a, r->rx_size);

	if (!skb)
		return NULL;
	*bus = dma_map_single(&r->pdev->dev, skb->data, r->rx_size, DMA_FROM_DEVICE);
	if (!dma_mapping_error(&r->pdev->dev, *bus))
		return skb;
	dev_kfree_skb_any(skb);
	return NULL;
}

/* Gives each descriptor a packet to receive into. Context: May sleep. Return: 0 or -ENOMEM. */
int rtl_fill(struct rtl *r)
{
	unsigned int i;

	r->rx_size = r->dev->mtu > ETH_DATA_LEN ? r->dev->mtu + ETH_HLEN + 8 : 1536;
	r->rx_next = 0;
	for (i = 0; i < RX_RING; i++) {
		r->rx_skb[i] = fresh(r, &r->rx_bus[i]);
		if (!r->rx_skb[i])
			return -ENOMEM;
		lend(r, i);
	}
	return 0;
}

/* Frees the packets that would have been received into. The device is halted. */
void rtl_drain(struct rtl *r)
{
	unsigned int i;

	for (i = 0; i < RX_RING; i++) {
		r->rx[i].status = cpu_to_le32(end_of(i, RX_RING));
		if (!r->rx_skb[i])
			continue;
		dma_unmap_single(&r->pdev->dev, r->rx_bus[i], r->rx_size, DMA_FROM_DEVICE);
		dev_kfree_skb_any(r->rx_skb[i]);
		r->rx_skb[i] = NULL;
	}
}

/* Lends all descriptors again, to a device that begins with the first. */
void rtl_relend(struct rtl *r)
{
	unsigned int i;

	r->rx_next = 0;
	for (i = 0; i < RX_RING; i++)
		if (r->rx_skb[i])
			lend(r, i);
}

static void count_error(struct rtl *r, u32 status)
{
	struct net_device_stats *stats = &r->dev->stats;

	stats->rx_errors++;
	if (status & RXS_FRAME)
		stats->rx_frame_errors++;
	if (status & RXS_CRC)
		stats->rx_crc_errors++;
	if (status & (RXS_RUNT | RXS_LONG))
		stats->rx_length_errors++;
	if ((status & (FIRST | LAST)) != (FIRST | LAST))
		stats->rx_length_errors++;
	if (status & RXS_FIFO)
		stats->rx_fifo_errors++;
}

static bool checksum_good(u32 status)
{
	switch (RXS_PROTOCOL(status)) {
	case 1:
		return !(status & (RXS_BAD_TCP | RXS_BAD_IP));
	case 2:
		return !(status & (RXS_BAD_UDP | RXS_BAD_IP));
	default:
		return false;
	}
}

/* Whether the packet of a descriptor is whole. */
static bool is_good(u32 status, unsigned int length, unsigned int size)
{
	if ((status & (FIRST | LAST)) != (FIRST | LAST) || status & (RXS_ERROR | RXS_FIFO))
		return false;
	return length >= ETH_HLEN && length <= size;
}

/* The next packet that was received, or NULL. What is damaged is counted and dropped, at most a ring of it at once. */
struct sk_buff *rtl_receive(struct rtl *r)
{
	unsigned int n, i, length;
	struct sk_buff *skb, *next;
	dma_addr_t bus;
	u32 status, tag;

	for (n = 0; n < RX_RING; n++, r->rx_next++) {
		i = r->rx_next % RX_RING;
		skb = r->rx_skb[i];
		status = le32_to_cpu(READ_ONCE(r->rx[i].status));
		if (status & OWN)
			return NULL;
		/* The rest of the descriptor is of the same packet as the mark. */
		dma_rmb();
		tag = le32_to_cpu(r->rx[i].tag);
		length = (status & RXS_LENGTH) - ETH_FCS_LEN;
		next = fresh(r, &bus);
		if (skb && !(is_good(status, length, r->rx_size) && next)) {
			if (is_good(status, length, r->rx_size))
				r->dev->stats.rx_dropped++;
			else
				count_error(r, status);
		}
		if (skb && next && is_good(status, length, r->rx_size)) {
			dma_unmap_single(&r->pdev->dev, r->rx_bus[i], r->rx_size, DMA_FROM_DEVICE);
			r->rx_skb[i] = next;
			r->rx_bus[i] = bus;
			lend(r, i);
			r->rx_next++;
			skb_put(skb, length);
			skb->ip_summed = checksum_good(status) ? CHECKSUM_UNNECESSARY : CHECKSUM_NONE;
			if (tag & RX_TAGGED)
				__vlan_hwaccel_put_tag(skb, htons(ETH_P_8021Q), swab16(tag & 0xffff));
			return skb;
		}
		if (!skb && !next)
			return NULL;
		if (!skb) {
			r->rx_skb[i] = next;
			r->rx_bus[i] = bus;
		} else if (next) {
			dma_unmap_single(&r->pdev->dev, bus, r->rx_size, DMA_FROM_DEVICE);
			dev_kfree_skb_any(next);
		}
		lend(r, i);
	}
	return NULL;
}

/* --- Packets to send. */

/* Takes back descriptors from one on. */
static void unmap(struct rtl *r, unsigned int i)
{
	i %= TX_RING;
	dma_unmap_page(&r->pdev->dev, r->tx_bus[i], r->tx_size[i], DMA_TO_DEVICE);
	r->tx[i].status = cpu_to_le32(end_of(i, TX_RING));
}

/* What a packet wants of the device: to be split, or checksums. */
static u32 wants(const struct sk_buff *skb)
{
	unsigned int mss = skb_shinfo(skb)->gso_size;
	const struct iphdr *ip;

	if (mss)
		return TX_SEGMENT | mss << TX_MSS_SHIFT;
	if (skb->ip_summed != CHECKSUM_PARTIAL)
		return 0;
	ip = ip_hdr(skb);
	if (ip->protocol == IPPROTO_TCP)
		return TX_IP | TX_TCP;
	if (ip->protocol == IPPROTO_UDP)
		return TX_IP | TX_UDP;
	return 0;
}

/* Maps the part of a packet: 0 is its linear data, and the others are its fragments. */
static dma_addr_t map(struct rtl *r, struct sk_buff *skb, unsigned int part, u32 *size)
{
	const skb_frag_t *fragment;

	if (!part) {
		*size = skb_headlen(skb);
		return dma_map_single(&r->pdev->dev, skb->data, *size, DMA_TO_DEVICE);
	}
	fragment = &skb_shinfo(skb)->frags[part - 1];
	*size = skb_frag_size(fragment);
	return skb_frag_dma_map(&r->pdev->dev, fragment, 0, *size, DMA_TO_DEVICE);
}

/*
 * Queues a packet, for which there is room. The device sees its first descriptor last, so that it begins with all of it.
 * Return: False if it cannot be mapped.
 */
bool rtl_queue(struct rtl *r, struct active_message *m)
{
	struct sk_buff *skb = ethernet_xmit_skb(m);
	unsigned int parts = skb_shinfo(skb)->nr_frags + 1, part, i;
	u32 size, words = wants(skb), first = 0;
	__le32 tag = skb_vlan_tag_present(skb) ? cpu_to_le32(TX_TAG | swab16(skb_vlan_tag_get(skb))) : 0;
	dma_addr_t bus;

	for (part = 0; part < parts; part++) {
		i = (r->tx_end + part) % TX_RING;
		bus = map(r, skb, part, &size);
		if (dma_mapping_error(&r->pdev->dev, bus))
			goto failed;
		r->tx_bus[i] = bus;
		r->tx_size[i] = size;
		r->tx_message[i] = part == parts - 1 ? m : NULL;
		r->tx[i].tag = tag;
		r->tx[i].address = cpu_to_le64(bus);
		size |= words | OWN | end_of(i, TX_RING) | (part == parts - 1 ? LAST : 0) | (part ? 0 : FIRST);
		if (part)
			r->tx[i].status = cpu_to_le32(size);
		else
			first = size;
	}
	dma_wmb();
	r->tx[r->tx_end % TX_RING].status = cpu_to_le32(first);
	r->tx_end += parts;
	rtl_time(r);
	/* The device must see the ring before it is asked to look. It may interrupt at once. */
	wmb();
	active_doorbell(r->a, rtl_ring, r);
	return true;
failed:
	while (part--)
		unmap(r, r->tx_end + part);
	return false;
}

static void count_sent(struct rtl *r, struct active_message *m, u32 status)
{
	struct net_device_stats *stats = &r->dev->stats;

	stats->collisions += TXS_COLLISIONS(status);
	m->number = status & (TXS_ERROR | TXS_FIFO) ? -EIO : 0;
	if (!m->number)
		return;
	if (status & TXS_WINDOW)
		stats->tx_window_errors++;
	if (status & TXS_COLLISIONS_EXCEEDED)
		stats->tx_aborted_errors++;
	if (status & TXS_CARRIER)
		stats->tx_carrier_errors++;
	if (status & TXS_FIFO)
		stats->tx_fifo_errors++;
}

/* The next packet that was sent, or NULL. */
struct active_message *rtl_sent(struct rtl *r)
{
	struct active_message *m;
	unsigned int i, n;
	u32 status;

	for (n = 0; n < TX_RING && r->tx_begin != r->tx_end; n++) {
		i = r->tx_begin % TX_RING;
		status = le32_to_cpu(READ_ONCE(r->tx[i].status));
		if (status & OWN)
			return NULL;
		dma_rmb();
		m = r->tx_message[i];
		unmap(r, r->tx_begin++);
		if (!m)
			continue;
		count_sent(r, m, status);
		return m;
	}
	return NULL;
}

/* The next packet that was queued, whether the device, which is halted, has sent it or not; or NULL. */
struct active_message *rtl_unsent(struct rtl *r)
{
	struct active_message *m;
	unsigned int n;

	for (n = 0; n < TX_RING && r->tx_begin != r->tx_end; n++) {
		m = r->tx_message[r->tx_begin % TX_RING];
		unmap(r, r->tx_begin++);
		if (!m)
			continue;
		m->number = -EIO;
		return m;
	}
	/* A device that starts again begins with the first. */
	r->tx_begin = r->tx_end = 0;
	return NULL;
}

int rtl_rings_make(struct rtl *r)
{
	r->tx = dma_alloc_coherent(&r->pdev->dev, RINGS_BYTES, &r->ring_bus, GFP_KERNEL);
	if (!r->tx)
		return -ENOMEM;
	r->rx = r->tx + TX_RING;
	r->tx_begin = r->tx_end = r->rx_next = 0;
	r->tx[TX_RING - 1].status = cpu_to_le32(END);
	return 0;
}

void rtl_rings_free(struct rtl *r)
{
	dma_free_coherent(&r->pdev->dev, RINGS_BYTES, r->tx, r->ring_bus);
	r->tx = r->rx = NULL;
}
