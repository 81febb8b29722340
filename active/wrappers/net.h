/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Inside the wrapper for Ethernet. */
#ifndef ACTIVE_WRAPPERS_NET_H
#define ACTIVE_WRAPPERS_NET_H

#include "active_net.h"
#include "wrapper.h"

/* What poll() finds out of the run of the driver that it caused. */
enum active_poll { ACTIVE_POLL_ELSEWHERE, ACTIVE_POLL_DONE, ACTIVE_POLL_MORE };

/* Bits of struct ethernet.busy. */
enum { RX_MODE_SENT, STATISTICS_SENT, TIMEOUT_SENT };

/**
 * struct ethernet - A network device; the private data of its struct net_device.
 * @a: The domain.
 * @dev: The network device.
 * @pdev: The PCI device.
 * @driver: What the driver says of itself.
 * @napi: The poll that lets the driver receive.
 * @request: For requests that RTNL serializes.
 * @rx: Packets that were received while another thread than the poll ran the driver.
 * @registering: Registers the network device.
 * @unregistering: Unregisters it.
 * @rx_mode: Message of that box, and so the others.
 * @busy: Which of these messages are on their way.
 * @filter_lock: Protects @filter; nothing nests inside.
 * @filter: What the device is to receive.
 * @poll: What the poll's run of the driver came to. It and the next are of the poll that caused the run.
 * @budget: The poll's.
 * @work: How many packets it received.
 * @sent_packets: Packets that have been sent, and of which the queue's limit does not know yet. The domain's owner's.
 * @sent_bytes: Their bytes.
 * @full: The driver takes no packets. The owner's.
 * @jammed: The box of packets was full.
 * @stats: Counters. The owner's.
 */
struct ethernet {
	struct active *a;
	struct net_device *dev;
	struct pci_dev *pdev;
	const struct active_ethernet_driver *driver;
	struct napi_struct napi;
	struct active_request request;
	struct sk_buff_head rx;
	struct work_struct registering, unregistering;
	struct active_message registered, unregistered, rx_mode, statistics, timeout;
	unsigned long busy;
	spinlock_t filter_lock;
	struct active_ethernet_filter filter;
	enum active_poll poll;
	int budget, work;
	unsigned int sent_packets, sent_bytes;
	bool full, jammed;
	struct {
		u64 rx_packets, rx_bytes, rx_missed, multicast, tx_packets, tx_bytes, tx_errors, tx_dropped;
	} stats;
};

/* Asks the driver for something. Context: RTNL. */
long active_ethernet_ask(struct ethernet *e, struct active_ethernet_change *change);

extern const struct ethtool_ops active_ethtool_ops;

#endif
