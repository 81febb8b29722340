// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A change of the MTU starts a ring anew on which the stack transmits.
 *
 * Twin: a change of the MTU starts a ring anew while nothing transmits.
 */
#include "race_net.h"

static unsigned long head;

static noinline netdev_tx_t race_netdev_xmit(struct sk_buff *skb, struct net_device *dev)
{
	head++; /* OTHER: */
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

static noinline int race_netdev_change_mtu(struct net_device *dev, int mtu)
{
#ifdef TWIN
	netif_tx_lock_bh(dev);
#endif
	head = 0; /* BUG: data-race */
#ifdef TWIN
	netif_tx_unlock_bh(dev);
#endif
	WRITE_ONCE(dev->mtu, mtu);
	return 0;
}

static noinline int race_netdev_open(struct net_device *dev)
{
	head = 1;
	netif_start_queue(dev);
	return 0;
}

static noinline int race_netdev_stop(struct net_device *dev)
{
	netif_stop_queue(dev);
	head = 0;
	return 0;
}

static const struct net_device_ops ops = {
	.ndo_open = race_netdev_open,
	.ndo_stop = race_netdev_stop,
	.ndo_start_xmit = race_netdev_xmit,
	.ndo_change_mtu = race_netdev_change_mtu,
};

static int __init race_netdev_init(void)
{
	int err = race_net_create(&ops);

	return err ? err : race_net_register();
}

static void __exit race_netdev_exit(void)
{
	unregister_netdev(race_net);
	race_use(head);
	free_netdev(race_net);
}

module_init(race_netdev_init);
module_exit(race_netdev_exit);
MODULE_DESCRIPTION("zoo: starts a transmit ring anew");
