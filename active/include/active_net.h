/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Active drivers of Ethernet devices, protocols `ethernet` and `irq`. */
#ifndef ACTIVE_NET_H
#define ACTIVE_NET_H

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/mii.h>
#include <linux/netdevice.h>

#include "active_pci.h"

/**
 * struct active_ethernet_driver - What the wrapper must know of a driver; active_pci_driver.data points to it.
 * @version: For ethtool.
 * @timeout: The kernel sends `timeout` if the device has sent nothing for so long, in jiffies.
 * @least_mtu: The least MTU.
 * @greatest_mtu: The greatest MTU.
 * @greatest_segment: The greatest segment size that the device can split packets into.
 * @rx_ring: Packets that the device may receive at once.
 * @tx_ring: Packets that it may send at once.
 * @registers: Bytes that ACTIVE_READ_REGISTERS reads; 0 if the driver does not.
 * @eeprom: Bytes of the EEPROM; 0 if the driver does not read it.
 * @counter_names: Names of the counters that ACTIVE_READ_COUNTERS reads.
 * @counters: Their number.
 */
struct active_ethernet_driver {
	const char *version;
	unsigned long timeout;
	unsigned int least_mtu, greatest_mtu, greatest_segment;
	unsigned int rx_ring, tx_ring;
	unsigned int registers, eeprom;
	const char (*counter_names)[ETH_GSTRING_LEN];
	unsigned int counters;
};

/* What a message `change` asks for. */
enum active_ethernet_change_kind {
	ACTIVE_SET_MTU,		/* @value */
	ACTIVE_SET_ADDRESS,	/* @data: ETH_ALEN bytes */
	ACTIVE_SET_FEATURES,	/* @value */
	ACTIVE_GET_LINK,	/* @data: struct ethtool_link_ksettings */
	ACTIVE_SET_LINK,	/* @data: the same, const */
	ACTIVE_RENEGOTIATE,
	ACTIVE_MII,		/* @data: struct ifreq; @value: the command */
	ACTIVE_READ_REGISTERS,	/* @data: bytes */
	ACTIVE_READ_EEPROM,	/* @data: bytes; @offset, @length */
	ACTIVE_READ_COUNTERS,	/* @data: u64 each */
	ACTIVE_GET_WAKE,	/* @data: struct ethtool_wolinfo */
	ACTIVE_SET_WAKE,	/* @data: the same */
};

/**
 * struct active_ethernet_change - What the kernel asks for. RTNL is held until the driver emits `changed`.
 * @kind: What.
 * @data: As @kind says.
 * @value: As @kind says.
 * @offset: As @kind says.
 * @length: As @kind says.
 */
struct active_ethernet_change {
	enum active_ethernet_change_kind kind;
	void *data;
	u64 value;
	u32 offset, length;
};

#define ACTIVE_FILTER_ADDRESSES 64

/**
 * struct active_ethernet_filter - Which packets the device is to receive.
 * @flags: Flags of the network device; IFF_ALLMULTI also where there are more addresses than fit.
 * @count: How many addresses of groups.
 * @addresses: The addresses.
 */
struct active_ethernet_filter {
	unsigned int flags, count;
	u8 addresses[ACTIVE_FILTER_ADDRESSES][ETH_ALEN];
};

/* Hooks for struct active_pci_driver. */
int active_ethernet_attach(struct active *a, struct pci_dev *pdev, const struct active_pci_driver *driver);
void active_ethernet_detach(struct active *a);

/**
 * active_ethernet_dev() - The network device of a domain.
 *
 * Before the driver emits `register` it sets the address and the features there.
 */
struct net_device *active_ethernet_dev(struct active *a);
/* The domain of a network device. */
struct active *active_ethernet_of(struct net_device *dev);

/**
 * active_ethernet_filter() - Reads which packets the device is to receive, on `rx_mode` and when the device starts.
 * Context: Any.
 */
void active_ethernet_filter(struct active *a, struct active_ethernet_filter *filter);

/**
 * active_ethernet_sent() - Tells the domain that packets were sent, and of nothing else; for top halves.
 *
 * The driver receives IRQ_RAISED with no bits, in the interrupt itself if it can, which saves a poll.
 *
 * Context: Any.
 */
void active_ethernet_sent(struct active *a);

/**
 * active_ethernet_skb() - Allocates a packet to receive into, from what the poll keeps if that runs the driver.
 * Context: Any. Return: The packet, with its IP header aligned, or NULL.
 */
struct sk_buff *active_ethernet_skb(struct active *a, unsigned int size);

/* The message in the control block of a packet, which carries the packet to and from a driver. */
static inline struct active_message *active_packet(struct sk_buff *skb)
{
	struct active_message *m = (struct active_message *)skb->cb;

	BUILD_BUG_ON(sizeof(*m) > sizeof(skb->cb));
	m->pointer = skb;
	return m;
}

#endif
