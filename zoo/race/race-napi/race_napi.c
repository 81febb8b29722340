// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Transmit and the NAPI poll that it schedules count pending packets; only transmit is under the
 * queue's lock.
 *
 * Twin: transmit and the NAPI poll that it schedules count pending packets under the queue's lock.
 */
#include "race_net.h"

static unsigned long pending;
static struct napi_struct napi;

static noinline netdev_tx_t race_napi_xmit(struct sk_buff *skb, struct net_device *dev)
{
	pending++; /* OTHER: */
	dev_kfree_skb_any(skb);
	napi_schedule(&napi);
	return NETDEV_TX_OK;
}

static noinline int race_napi_poll(struct napi_struct *n, int budget)
{
#ifdef TWIN
	struct netdev_queue *queue = netdev_get_tx_queue(race_net, 0);

	__netif_tx_lock(queue, smp_processor_id());
#endif
	pending = 0; /* BUG: data-race */
#ifdef TWIN
	__netif_tx_unlock(queue);
#endif
	napi_complete_done(n, 0);
	return 0;
}

static int race_napi_open(struct net_device *dev)
{
	pending = 0;
	napi_enable(&napi);
	netif_start_queue(dev);
	return 0;
}

static int race_napi_stop(struct net_device *dev)
{
	netif_stop_queue(dev);
	napi_disable(&napi);
	race_use(pending);
	return 0;
}

static const struct net_device_ops ops = {
	.ndo_open = race_napi_open,
	.ndo_stop = race_napi_stop,
	.ndo_start_xmit = race_napi_xmit,
};

static int __init race_napi_init(void)
{
	int err = race_net_create(&ops);

	if (err)
		return err;
	netif_napi_add(race_net, &napi, race_napi_poll);
	return race_net_register();
}

static void __exit race_napi_exit(void)
{
	unregister_netdev(race_net);
	race_use(pending);
	free_netdev(race_net);
}

module_init(race_napi_init);
module_exit(race_napi_exit);
MODULE_DESCRIPTION("zoo: transmit and NAPI poll count packets");
