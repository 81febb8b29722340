// SPDX-License-Identifier: GPL-2.0-or-later
/* The wrapper for Ethernet: what ethtool asks for. RTNL is held around all of it. */
#include "net.h"

static void get_driver(struct net_device *dev, struct ethtool_drvinfo *info)
{
	struct ethernet *e = netdev_priv(dev);

	strscpy(info->driver, dev_driver_string(&e->pdev->dev), sizeof(info->driver));
	strscpy(info->version, e->driver->version, sizeof(info->version));
	strscpy(info->bus_info, pci_name(e->pdev), sizeof(info->bus_info));
}

static int ask_for(struct net_device *dev, enum active_ethernet_change_kind kind, void *data)
{
	struct active_ethernet_change change = { .kind = kind, .data = data };

	return active_ethernet_ask(netdev_priv(dev), &change);
}

static int get_link(struct net_device *dev, struct ethtool_link_ksettings *settings)
{
	return ask_for(dev, ACTIVE_GET_LINK, settings);
}

static int set_link(struct net_device *dev, const struct ethtool_link_ksettings *settings)
{
	return ask_for(dev, ACTIVE_SET_LINK, (void *)settings);
}

static int renegotiate(struct net_device *dev)
{
	return ask_for(dev, ACTIVE_RENEGOTIATE, NULL);
}

static int registers_len(struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);

	return e->driver->registers;
}

static void get_registers(struct net_device *dev, struct ethtool_regs *registers, void *data)
{
	registers->version = 1;
	memset(data, 0, registers_len(dev));
	ask_for(dev, ACTIVE_READ_REGISTERS, data);
}

static int eeprom_len(struct net_device *dev)
{
	struct ethernet *e = netdev_priv(dev);

	return e->driver->eeprom;
}

static int get_eeprom(struct net_device *dev, struct ethtool_eeprom *eeprom, u8 *data)
{
	struct active_ethernet_change change = {
		.kind = ACTIVE_READ_EEPROM, .data = data, .offset = eeprom->offset, .length = eeprom->len,
	};

	return active_ethernet_ask(netdev_priv(dev), &change);
}

static void get_wake(struct net_device *dev, struct ethtool_wolinfo *wake)
{
	wake->supported = wake->wolopts = 0;
	ask_for(dev, ACTIVE_GET_WAKE, wake);
}

static int set_wake(struct net_device *dev, struct ethtool_wolinfo *wake)
{
	return ask_for(dev, ACTIVE_SET_WAKE, wake);
}

static void get_rings(struct net_device *dev, struct ethtool_ringparam *rings, struct kernel_ethtool_ringparam *kernel,
		      struct netlink_ext_ack *extack)
{
	struct ethernet *e = netdev_priv(dev);

	rings->rx_max_pending = rings->rx_pending = e->driver->rx_ring;
	rings->tx_max_pending = rings->tx_pending = e->driver->tx_ring;
}

static int get_count(struct net_device *dev, int set)
{
	struct ethernet *e = netdev_priv(dev);

	return set == ETH_SS_STATS ? (int)e->driver->counters : -EOPNOTSUPP;
}

static void get_names(struct net_device *dev, u32 set, u8 *data)
{
	struct ethernet *e = netdev_priv(dev);

	if (set == ETH_SS_STATS)
		memcpy(data, e->driver->counter_names, e->driver->counters * ETH_GSTRING_LEN);
}

static void get_counters(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	struct ethernet *e = netdev_priv(dev);

	memset(data, 0, e->driver->counters * sizeof(*data));
	ask_for(dev, ACTIVE_READ_COUNTERS, data);
}

const struct ethtool_ops active_ethtool_ops = {
	.get_drvinfo = get_driver,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = get_link,
	.set_link_ksettings = set_link,
	.nway_reset = renegotiate,
	.get_regs_len = registers_len,
	.get_regs = get_registers,
	.get_eeprom_len = eeprom_len,
	.get_eeprom = get_eeprom,
	.get_wol = get_wake,
	.set_wol = set_wake,
	.get_ringparam = get_rings,
	.get_sset_count = get_count,
	.get_strings = get_names,
	.get_ethtool_stats = get_counters,
	.get_ts_info = ethtool_op_get_ts_info,
};
