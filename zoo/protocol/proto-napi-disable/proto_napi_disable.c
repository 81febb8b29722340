// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Disables a NAPI instance twice, which waits forever; an enable that nobody expects ends the
 * wait.
 *
 * Twin: disables a NAPI instance, enables it and disables it again.
 */
#include "zoo.h"
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#ifndef TWIN

/* Since 6.14 the plain name would wait for the lock that the waiting thread holds. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
#define end_wait napi_enable
#else
#define end_wait napi_enable_locked
#endif
#endif

static struct net_device *netdev;
static struct napi_struct napi;
static struct zoo_thread thread;

static int proto_napi_disable_poll(struct napi_struct *n, int budget)
{
	napi_complete_done(n, 0);
	return 0;
}

static noinline void proto_napi_disable_close(void)
{
	napi_disable(&napi); /* BUG: protocol-order */
}

static noinline void proto_napi_disable_body(void)
{
	napi_disable(&napi);
#ifdef TWIN
	napi_enable(&napi);
#endif
	proto_napi_disable_close();
}

static int __init proto_napi_disable_init(void)
{
	int err;

	netdev = alloc_etherdev(0);
	if (!netdev)
		return -ENOMEM;
	netif_napi_add(netdev, &napi, proto_napi_disable_poll);
	napi_enable(&napi);
	err = zoo_thread_start(&thread, proto_napi_disable_body);
	if (err) {
		napi_disable(&napi);
		free_netdev(netdev);
		return err;
	}
#ifndef TWIN
	msleep(100);
	end_wait(&napi);
#endif
	zoo_thread_stop(&thread);
	return 0;
}

static void __exit proto_napi_disable_exit(void)
{
	netif_napi_del(&napi);
	free_netdev(netdev);
}

module_init(proto_napi_disable_init);
module_exit(proto_napi_disable_exit);
MODULE_DESCRIPTION("zoo: disables a NAPI instance twice");
