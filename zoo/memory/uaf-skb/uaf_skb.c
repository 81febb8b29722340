// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Hands its last reference to a packet back and then reads the packet's length for the statistics.
 *
 * Twin: hands one of two references to a packet back, reads the packet's length, and drops the
 * other.
 */
#include <linux/skbuff.h>
#include "zoo.h"

static unsigned long uaf_skb_bytes;

static noinline void uaf_skb_complete(struct sk_buff *skb)
{
#ifdef TWIN
	skb_get(skb);
#endif
	kfree_skb(skb);
	uaf_skb_bytes += READ_ONCE(skb->len); /* BUG: use-after-free */
#ifdef TWIN
	kfree_skb(skb);
#endif
}

static int __init uaf_skb_init(void)
{
	struct sk_buff *skb = alloc_skb(256, GFP_KERNEL);

	if (!skb)
		return -ENOMEM;
	skb_put_zero(skb, 60);
	uaf_skb_complete(skb);
	return 0;
}

static void __exit uaf_skb_exit(void)
{
	zoo_sink = uaf_skb_bytes;
}

module_init(uaf_skb_init);
module_exit(uaf_skb_exit);
MODULE_DESCRIPTION("zoo: reads a socket buffer after it was freed");
