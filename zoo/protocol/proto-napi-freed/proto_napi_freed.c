// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a ring whose NAPI instance was never disabled.
 *
 * Twin: disables the NAPI instance of a ring before it frees the ring.
 */
#include "zoo.h"
#include <linux/etherdevice.h>
#include <linux/netdevice.h>

struct ring {
	struct napi_struct napi;
	unsigned int head;
};

static struct net_device *netdev;
static struct ring *ring;

static int proto_napi_freed_poll(struct napi_struct *n, int budget)
{
	napi_complete_done(n, 0);
	return 0;
}

static int __init proto_napi_freed_init(void)
{
	ring = kzalloc(sizeof(*ring), GFP_KERNEL);
	if (!ring)
		return -ENOMEM;
	netdev = alloc_etherdev(0);
	if (!netdev) {
		kfree(ring);
		return -ENOMEM;
	}
	netif_napi_add(netdev, &ring->napi, proto_napi_freed_poll);
	napi_enable(&ring->napi);
	return 0;
}

static void __exit proto_napi_freed_exit(void)
{
#ifdef TWIN
	napi_disable(&ring->napi);
#endif
	/* Deletes the instance, too; newer kernels warn there. */
	free_netdev(netdev); /* BUG: protocol-order */
	kfree(ring);
}

module_init(proto_napi_freed_init);
module_exit(proto_napi_freed_exit);
MODULE_DESCRIPTION("zoo: frees what holds an enabled NAPI instance");
