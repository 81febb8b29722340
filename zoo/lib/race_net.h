/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A network device without hardware, for the modules with data races: its workload brings zoo0 up, sends and takes it down.
 */
#ifndef ZOO_RACE_NET_H
#define ZOO_RACE_NET_H

#include "race.h"
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>

static struct net_device *race_net;

static inline int race_net_create(const struct net_device_ops *ops)
{
	race_net = alloc_etherdev(0);
	if (!race_net)
		return -ENOMEM;
	strscpy(race_net->name, "zoo0", sizeof(race_net->name));
	eth_hw_addr_random(race_net);
	race_net->netdev_ops = ops;
	return 0;
}

static inline int race_net_register(void)
{
	int err = register_netdev(race_net);

	if (err)
		free_netdev(race_net);
	return err;
}

#endif
