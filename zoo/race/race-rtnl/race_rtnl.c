// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A work item counts without RTNL what open counts with it.
 *
 * Twin: a work item takes RTNL, which is held when the device is opened.
 */
#include "race_net.h"

static unsigned long users;

static noinline int race_rtnl_open(struct net_device *dev)
{
	users++; /* OTHER: */
	netif_start_queue(dev);
	return 0;
}

static noinline int race_rtnl_stop(struct net_device *dev)
{
	netif_stop_queue(dev);
	return 0;
}

static netdev_tx_t race_rtnl_xmit(struct sk_buff *skb, struct net_device *dev)
{
	dev_kfree_skb_any(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops ops = {
	.ndo_open = race_rtnl_open,
	.ndo_stop = race_rtnl_stop,
	.ndo_start_xmit = race_rtnl_xmit,
};

static void race_rtnl_run(struct work_struct *work);
static DECLARE_DELAYED_WORK(work, race_rtnl_run);

static noinline void race_rtnl_run(struct work_struct *w)
{
#ifdef TWIN
	rtnl_lock();
#endif
	users++; /* BUG: data-race */
#ifdef TWIN
	rtnl_unlock();
#endif
	schedule_delayed_work(&work, 2);
}

static int __init race_rtnl_init(void)
{
	int err = race_net_create(&ops);

	if (!err)
		err = race_net_register();
	if (!err)
		schedule_delayed_work(&work, 2);
	return err;
}

static void __exit race_rtnl_exit(void)
{
	cancel_delayed_work_sync(&work);
	unregister_netdev(race_net);
	race_use(users);
	free_netdev(race_net);
}

module_init(race_rtnl_init);
module_exit(race_rtnl_exit);
MODULE_DESCRIPTION("zoo: open and work item share a counter");
