// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The wrapper for Ethernet: struct net_device_ops and NAPI as messages.
 *
 * A packet to send is a message in its own control block. A packet that is received goes to GRO if the poll runs the driver,
 * and else waits for the next poll, since only a poll may enter GRO.
 */
#include <linux/if_vlan.h>
#include <linux/rtnetlink.h>

#include "net.h"

/* Boxes that are of no use once the device is away. */
#define REQUESTS ACTIVE_BOXES(ETHERNET_OPEN, ETHERNET_CHANGE)
#define TRAFFIC ACTIVE_BOXES(ETHERNET_XMIT, ETHERNET_RX_MODE, ETHERNET_STATISTICS, ETHERNET_TIMEOUT)

/* The queue's limit knows of all but fewer packets or bytes that have been sent. */
#define SETTLED_PACKETS 8
#define SETTLED_BYTES 8192

/* knowledge/active/rights.txt has these numbers. */
static_assert(sizeof(struct active_ethernet_filter) == 392);
static_assert(offsetof(struct active_ethernet_change, data) == 8);

/* --- What the driver emits. */

/* The poll runs as a softirq, and a thread has no reason to run these by itself. */
static void poll_soon(struct ethernet *e)
{
	if (irqs_disabled() || in_softirq()) {
		napi_schedule(&e->napi);
	} else {
		local_bh_disable();
		napi_schedule(&e->napi);
		local_bh_enable();
	}
}

static void receive(struct ethernet *e, struct sk_buff *skb, bool by_poll)
{
	e->stats.rx_packets++;
	e->stats.rx_bytes += skb->len;
	skb->protocol = eth_type_trans(skb, e->dev);
	if (skb->pkt_type == PACKET_MULTICAST)
		e->stats.multicast++;
	if (by_poll) {
		e->work++;
		napi_gro_receive(&e->napi, skb);
	} else {
		skb_queue_tail(&e->rx, skb);
		poll_soon(e);
	}
}

/* Lets the queue's limit know what has been sent; it may start the queue. */
static void settle(struct ethernet *e)
{
	unsigned int packets = e->sent_packets, bytes = e->sent_bytes;

	if (!packets)
		return;
	e->sent_packets = e->sent_bytes = 0;
	netdev_completed_queue(e->dev, packets, bytes);
	if (unlikely(READ_ONCE(e->jammed)) && !e->full) {
		WRITE_ONCE(e->jammed, false);
		netif_wake_queue(e->dev);
	}
}

static void sent(struct ethernet *e, struct sk_buff *skb, long error, bool by_poll)
{
	e->sent_packets++;
	e->sent_bytes += skb->len;
	if (likely(!error)) {
		e->stats.tx_packets++;
		e->stats.tx_bytes += skb->len;
		napi_consume_skb(skb, by_poll ? e->budget : 0);
	} else {
		e->stats.tx_errors++;
		dev_kfree_skb_any(skb);
	}
	/* Whatever the driver runs for: the queue must not wait for the next interrupt. */
	if (e->sent_packets >= SETTLED_PACKETS || e->sent_bytes >= SETTLED_BYTES)
		settle(e);
}

static void serviced(struct ethernet *e, unsigned int box, bool by_poll)
{
	if (by_poll)
		e->poll = box == IRQ_SERVICED ? ACTIVE_POLL_DONE : ACTIVE_POLL_MORE;
	else if (box == IRQ_UNFINISHED)
		poll_soon(e);
	settle(e);
}

/* The device goes away, for a while or for ever. */
static void put_away(struct ethernet *e, unsigned int box)
{
	active_refuse(e->a, REQUESTS | TRAFFIC);
	if (box == ETHERNET_DETACH)
		netif_device_detach(e->dev);
	else
		schedule_work(&e->unregistering);
	settle(e);
}

static void change_queue(struct ethernet *e, bool full)
{
	e->full = full;
	if (full)
		netif_stop_queue(e->dev);
	else
		netif_wake_queue(e->dev);
}

static void emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct ethernet *e = data;
	bool by_poll = active_caller(a) == e;

	/* There is a table of jumps in no kernel that guards indirect ones; these two are the most frequent by far. */
	if (box == ETHERNET_RX || box == ETHERNET_TX_DONE) {
		/* A guarded driver may leave it out. */
		if (WARN_ON_ONCE(!m || !m->pointer))
			return;
		if (box == ETHERNET_RX)
			return receive(e, m->pointer, by_poll);
		return sent(e, m->pointer, m->number, by_poll);
	}
	switch (box) {
	case ETHERNET_QUEUE_STOP:
	case ETHERNET_QUEUE_WAKE:
		return change_queue(e, box == ETHERNET_QUEUE_STOP);
	case ETHERNET_REGISTER:
		schedule_work(&e->registering);
		return;
	case ETHERNET_OPENED:
		active_accept(a, TRAFFIC);
		e->full = false;
		netif_start_queue(e->dev);
		return active_answer(&e->request, 0);
	case ETHERNET_OPEN_FAILED:
		return active_answer(&e->request, m && m->number < 0 ? m->number : -EIO);
	case ETHERNET_STOPPED:
		active_refuse(a, TRAFFIC);
		settle(e);
		return active_answer(&e->request, 0);
	case ETHERNET_CHANGED:
		settle(e);
		return active_answer(&e->request, m ? m->number : 0);
	case ETHERNET_COUNTED:
		e->stats.rx_missed += m ? m->number : 0;
		clear_bit(STATISTICS_SENT, &e->busy);
		return;
	case ETHERNET_RESTARTED:
		clear_bit(TIMEOUT_SENT, &e->busy);
		settle(e);
		return change_queue(e, false);
	case ETHERNET_LINK_UP:
		return netif_carrier_on(e->dev);
	case ETHERNET_LINK_DOWN:
		return netif_carrier_off(e->dev);
	case ETHERNET_ATTACH:
		active_accept(a, REQUESTS | (netif_running(e->dev) ? TRAFFIC : 0));
		e->full = false;
		return netif_device_attach(e->dev);
	case ETHERNET_DETACH:
	case ETHERNET_UNREGISTER:
		return put_away(e, box);
	}
}

/* A message that the driver will not receive. */
static void refused(struct active *a, struct active_message *m, void *data)
{
	struct ethernet *e = data;
	struct sk_buff *skb;

	switch (m->box) {
	case ETHERNET_XMIT:
		skb = m->pointer;
		e->sent_packets++;
		e->sent_bytes += skb->len;
		e->stats.tx_dropped++;
		dev_kfree_skb_any(skb);
		break;
	case ETHERNET_RX_MODE:
		clear_bit(RX_MODE_SENT, &e->busy);
		break;
	case ETHERNET_STATISTICS:
		clear_bit(STATISTICS_SENT, &e->busy);
		break;
	case ETHERNET_TIMEOUT:
		clear_bit(TIMEOUT_SENT, &e->busy);
		break;
	case ETHERNET_OPEN:
	case ETHERNET_STOP:
	case ETHERNET_CHANGE:
		active_answer(&e->request, -ENODEV);
		break;
	}
}

static const struct active_role ethernet_role = { .protocol = ACTIVE_ETHERNET, .emitted = emitted, .refused = refused };

static void irq_emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct ethernet *e = data;

	if (box == IRQ_ENABLE)
		active_accept(a, ACTIVE_BIT(IRQ_RAISED));
	else if (box == IRQ_DISABLE)
		active_refuse(a, ACTIVE_BIT(IRQ_RAISED));
	else
		serviced(e, box, active_caller(a) == e);
}

static const struct active_role irq_role = { .protocol = ACTIVE_IRQ, .emitted = irq_emitted };

/* --- Interrupts and NAPI. */

void active_ethernet_sent(struct active *a)
{
	active_deliver(a, 0, NULL);
}
EXPORT_SYMBOL_GPL(active_ethernet_sent);

static void kick(struct active *a, void *data)
{
	struct ethernet *e = data;

	napi_schedule(&e->napi);
}

/*
 * Lets the driver receive. If another thread runs it, that thread will, and its packets come to the next poll. The device
 * interrupts again when the driver wants it to; if that is before the end of this poll, NAPI polls again.
 */
static int poll(struct napi_struct *napi, int budget)
{
	struct ethernet *e = container_of(napi, struct ethernet, napi);
	struct sk_buff *skb;

	e->work = 0;
	e->budget = budget;
	/* Mostly empty, and then its lock need not be taken. */
	while (e->work < budget && !skb_queue_empty(&e->rx) && (skb = skb_dequeue(&e->rx))) {
		e->work++;
		napi_gro_receive(napi, skb);
	}
	if (budget && e->work == budget)
		return budget;
	e->poll = ACTIVE_POLL_ELSEWHERE;
	active_deliver(e->a, budget - e->work, e);
	if (e->poll == ACTIVE_POLL_MORE || !skb_queue_empty(&e->rx) || e->work >= budget)
		return budget;
	napi_complete_done(napi, e->work);
	return e->work;
}

/* --- What the kernel calls. */

static netdev_tx_t start_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);
	struct active_message *m = active_packet(skb);
	unsigned int bytes = skb->len;

	m->box = ETHERNET_XMIT;
	m->number = netdev_xmit_more();
	netdev_sent_queue(dev, bytes);
	if (likely(active_send(e->a, m)))
		return NETDEV_TX_OK;
	/* The box is full: the driver did not run for long. What it sends next starts the queue again. */
	netdev_completed_queue(dev, 1, bytes);
	netif_stop_queue(dev);
	WRITE_ONCE(e->jammed, true);
	return NETDEV_TX_BUSY;
}

static int open(struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);
	long err;

	netdev_reset_queue(dev);
	e->sent_packets = e->sent_bytes = 0;
	e->jammed = false;
	napi_enable(&e->napi);
	err = active_ask(e->a, &e->request, ETHERNET_OPEN, NULL, 0);
	if (err)
		napi_disable(&e->napi);
	return err;
}

static int stop(struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);

	netif_tx_disable(dev);
	active_ask(e->a, &e->request, ETHERNET_STOP, NULL, 0);
	napi_disable(&e->napi);
	skb_queue_purge(&e->rx);
	return 0;
}

/* Sends a message unless one like it is on its way. */
static void notify(struct ethernet *e, unsigned int bit, struct active_message *m, unsigned int box)
{
	if (test_and_set_bit(bit, &e->busy))
		return;
	m->box = box;
	if (!active_send(e->a, m))
		clear_bit(bit, &e->busy);
}

static void set_rx_mode(struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);
	struct active_ethernet_filter *filter = &e->filter;
	struct netdev_hw_addr *address;
	unsigned long flags;

	spin_lock_irqsave(&e->filter_lock, flags);
	filter->flags = dev->flags;
	filter->count = 0;
	netdev_for_each_mc_addr(address, dev) {
		if (filter->count == ACTIVE_FILTER_ADDRESSES) {
			filter->flags |= IFF_ALLMULTI;
			break;
		}
		memcpy(filter->addresses[filter->count++], address->addr, ETH_ALEN);
	}
	spin_unlock_irqrestore(&e->filter_lock, flags);
	notify(e, RX_MODE_SENT, &e->rx_mode, ETHERNET_RX_MODE);
}

void active_ethernet_filter(struct active *a, struct active_ethernet_filter *filter)
{
	struct ethernet *e = active_data(a, ACTIVE_ETHERNET);
	unsigned long flags;

	clear_bit(RX_MODE_SENT, &e->busy);
	smp_mb__after_atomic();
	spin_lock_irqsave(&e->filter_lock, flags);
	*filter = e->filter;
	spin_unlock_irqrestore(&e->filter_lock, flags);
}
EXPORT_SYMBOL_GPL(active_ethernet_filter);

struct sk_buff *active_ethernet_skb(struct active *a, unsigned int size)
{
	struct ethernet *e = active_data(a, ACTIVE_ETHERNET);

	return active_caller(a) == e ? napi_alloc_skb(&e->napi, size) : netdev_alloc_skb_ip_align(e->dev, size);
}
EXPORT_SYMBOL_GPL(active_ethernet_skb);

static void tx_timeout(struct net_device *dev, unsigned int queue)
{
	struct ethernet *e = netdev_priv(dev);

	netdev_warn(dev, "the device has sent nothing for %u ms\n", jiffies_to_msecs(e->driver->timeout));
	notify(e, TIMEOUT_SENT, &e->timeout, ETHERNET_TIMEOUT);
}

/* What the device counts itself may be added a little later, if the driver is busy. */
static void get_stats(struct net_device *dev, struct rtnl_link_stats64 *stats)
{
	struct ethernet *e = netdev_priv(dev);

	if (netif_running(dev) && netif_device_present(dev))
		notify(e, STATISTICS_SENT, &e->statistics, ETHERNET_STATISTICS);
	stats->rx_packets = e->stats.rx_packets;
	stats->rx_bytes = e->stats.rx_bytes;
	stats->multicast = e->stats.multicast;
	stats->rx_missed_errors = e->stats.rx_missed;
	stats->tx_packets = e->stats.tx_packets;
	stats->tx_bytes = e->stats.tx_bytes;
	stats->tx_errors = e->stats.tx_errors;
	stats->tx_dropped = e->stats.tx_dropped;
	stats->rx_errors = dev->stats.rx_errors;
	stats->rx_dropped = dev->stats.rx_dropped;
	stats->rx_length_errors = dev->stats.rx_length_errors;
	stats->rx_crc_errors = dev->stats.rx_crc_errors;
	stats->rx_frame_errors = dev->stats.rx_frame_errors;
	stats->rx_fifo_errors = dev->stats.rx_fifo_errors;
	stats->collisions = dev->stats.collisions;
	stats->tx_aborted_errors = dev->stats.tx_aborted_errors;
	stats->tx_carrier_errors = dev->stats.tx_carrier_errors;
	stats->tx_fifo_errors = dev->stats.tx_fifo_errors;
	stats->tx_window_errors = dev->stats.tx_window_errors;
}

/* Bytes that the driver writes where the data of a change are. Guarded drivers are lent these until the answer. */
static long writes(const struct ethernet *e, const struct active_ethernet_change *change)
{
	switch (change->kind) {
	case ACTIVE_GET_LINK:
		return sizeof(struct ethtool_link_ksettings);
	case ACTIVE_MII:
		return sizeof(struct ifreq);
	case ACTIVE_READ_REGISTERS:
		return e->driver->registers;
	case ACTIVE_READ_EEPROM:
		return change->length;
	case ACTIVE_READ_COUNTERS:
		return e->driver->counters * sizeof(u64);
	case ACTIVE_GET_WAKE:
		return sizeof(struct ethtool_wolinfo);
	default:
		return 0;
	}
}

long active_ethernet_ask(struct ethernet *e, struct active_ethernet_change *change)
{
	ASSERT_RTNL();
	if (!netif_device_present(e->dev))
		return -ENODEV;
	return active_ask(e->a, &e->request, ETHERNET_CHANGE, change, writes(e, change));
}

static int change_mtu(struct net_device *dev, int mtu)
{
	struct active_ethernet_change change = { .kind = ACTIVE_SET_MTU, .value = mtu };
	int old = dev->mtu;
	long err;

	WRITE_ONCE(dev->mtu, mtu);
	err = active_ethernet_ask(netdev_priv(dev), &change);
	if (err)
		WRITE_ONCE(dev->mtu, old);
	return err;
}

static int set_address(struct net_device *dev, void *data)
{
	struct sockaddr *address = data;
	struct active_ethernet_change change = { .kind = ACTIVE_SET_ADDRESS, .data = address->sa_data };
	long err;

	if (!is_valid_ether_addr(address->sa_data))
		return -EADDRNOTAVAIL;
	err = active_ethernet_ask(netdev_priv(dev), &change);
	if (!err)
		eth_hw_addr_set(dev, address->sa_data);
	return err;
}

static int set_features(struct net_device *dev, netdev_features_t features)
{
	struct active_ethernet_change change = { .kind = ACTIVE_SET_FEATURES, .value = features };

	if (!((dev->features ^ features) & (NETIF_F_RXCSUM | NETIF_F_HW_VLAN_CTAG_RX)))
		return 0;
	return active_ethernet_ask(netdev_priv(dev), &change);
}

static netdev_features_t features_check(struct sk_buff *skb, struct net_device *dev, netdev_features_t features)
{
	struct ethernet *e = netdev_priv(dev);

	if (skb_shinfo(skb)->gso_size > e->driver->greatest_segment)
		features &= ~NETIF_F_TSO;
	return vlan_features_check(skb, features);
}

static int mii_ioctl(struct net_device *dev, struct ifreq *request, int command)
{
	struct active_ethernet_change change = { .kind = ACTIVE_MII, .data = request, .value = command };

	return netif_running(dev) ? active_ethernet_ask(netdev_priv(dev), &change) : -EINVAL;
}

#ifdef CONFIG_NET_POLL_CONTROLLER
static void poll_controller(struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);

	active_interrupt(e->a, 0);
}
#endif

static const struct net_device_ops ops = {
	.ndo_open = open,
	.ndo_stop = stop,
	.ndo_start_xmit = start_xmit,
	.ndo_set_rx_mode = set_rx_mode,
	.ndo_tx_timeout = tx_timeout,
	.ndo_get_stats64 = get_stats,
	.ndo_change_mtu = change_mtu,
	.ndo_set_mac_address = set_address,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_features = set_features,
	.ndo_features_check = features_check,
	.ndo_eth_ioctl = mii_ioctl,
#ifdef CONFIG_NET_POLL_CONTROLLER
	.ndo_poll_controller = poll_controller,
#endif
};

/* --- Life. */

/* Registering a device takes RTNL, which what the driver runs in may hold; so it is work. */
static void register_it(struct work_struct *work)
{
	struct ethernet *e = container_of(work, struct ethernet, registering);
	int err = register_netdev(e->dev);

	e->registered.box = err ? ETHERNET_REGISTER_FAILED : ETHERNET_REGISTERED;
	e->registered.number = err;
	active_send(e->a, &e->registered);
}

static void unregister_it(struct work_struct *work)
{
	struct ethernet *e = container_of(work, struct ethernet, unregistering);

	unregister_netdev(e->dev);
	e->unregistered.box = ETHERNET_UNREGISTERED;
	active_send(e->a, &e->unregistered);
}

int active_ethernet_attach(struct active *a, struct pci_dev *pdev, const struct active_pci_driver *driver)
{
	struct net_device *dev = alloc_etherdev(sizeof(struct ethernet));
	struct ethernet *e;

	if (!dev)
		return -ENOMEM;
	e = netdev_priv(dev);
	e->a = a;
	e->dev = dev;
	e->pdev = pdev;
	e->driver = driver->data;
	active_request_init(&e->request);
	skb_queue_head_init(&e->rx);
	spin_lock_init(&e->filter_lock);
	INIT_WORK(&e->registering, register_it);
	INIT_WORK(&e->unregistering, unregister_it);
	SET_NETDEV_DEV(dev, &pdev->dev);
	dev->netdev_ops = &ops;
	dev->ethtool_ops = &active_ethtool_ops;
	dev->watchdog_timeo = e->driver->timeout;
	dev->min_mtu = e->driver->least_mtu;
	dev->max_mtu = e->driver->greatest_mtu;
	netif_napi_add_weight(dev, &e->napi, poll, 16);
	netif_carrier_off(dev);
	active_play(a, &ethernet_role, e);
	active_play(a, &irq_role, e);
	/* All that the roles do is fit for hard interrupts; but what they say is left to the poll, unless it is active_ethernet_sent(). */
	active_interrupt_directly(a);
	active_kick_by(a, kick, e);
	return 0;
}
EXPORT_SYMBOL_GPL(active_ethernet_attach);

void active_ethernet_detach(struct active *a)
{
	struct ethernet *e = active_data(a, ACTIVE_ETHERNET);

	cancel_work_sync(&e->registering);
	cancel_work_sync(&e->unregistering);
	/* A guarded driver that was ended has not unregistered it. */
	if (e->dev->reg_state == NETREG_REGISTERED)
		unregister_netdev(e->dev);
	netif_napi_del(&e->napi);
	skb_queue_purge(&e->rx);
	free_netdev(e->dev);
}
EXPORT_SYMBOL_GPL(active_ethernet_detach);

struct net_device *active_ethernet_dev(struct active *a)
{
	struct ethernet *e = active_data(a, ACTIVE_ETHERNET);

	return e->dev;
}
EXPORT_SYMBOL_GPL(active_ethernet_dev);

struct active *active_ethernet_of(struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);

	return e->a;
}
EXPORT_SYMBOL_GPL(active_ethernet_of);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Active drivers of Ethernet devices");
