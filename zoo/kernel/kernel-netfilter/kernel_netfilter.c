// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A netfilter hook looks packets up in a table by their length; the longest ones are one entry
 * behind its end.
 *
 * Twin: a netfilter hook looks packets up in a table by their length; the longest ones are all in
 * its last entry.
 */
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/skbuff.h>
#include <net/net_namespace.h>
#include "zoo.h"

/* 92 bytes in a slot of 96. */
#define CLASSES 23

static u32 *limits;

static noinline u32 kernel_netfilter_limit(unsigned int length)
{
#ifdef TWIN
	unsigned int class = min(length / 64, (unsigned int)CLASSES - 1);
#else
	unsigned int class = min(length / 64, (unsigned int)CLASSES);
#endif

	return READ_ONCE(limits[class]); /* BUG: out-of-bounds */
}

static unsigned int kernel_netfilter_hook(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	zoo_sink = kernel_netfilter_limit(skb->len);
	return NF_ACCEPT;
}

static const struct nf_hook_ops kernel_netfilter_ops = {
	.hook = kernel_netfilter_hook,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_LOCAL_OUT,
	.priority = NF_IP_PRI_FILTER,
};

static int __init kernel_netfilter_init(void)
{
	int err;

	limits = kcalloc(CLASSES, sizeof(*limits), GFP_KERNEL);
	if (!limits)
		return -ENOMEM;
	err = nf_register_net_hook(&init_net, &kernel_netfilter_ops);
	if (err)
		kfree(limits);
	return err;
}

static void __exit kernel_netfilter_exit(void)
{
	nf_unregister_net_hook(&init_net, &kernel_netfilter_ops);
	kfree(limits);
}

module_init(kernel_netfilter_init);
module_exit(kernel_netfilter_exit);
MODULE_DESCRIPTION("zoo: a netfilter hook reads one entry behind its table");
