// SPDX-License-Identifier: GPL-2.0-or-later
/* Network devices of a dead domain: stopped, unregistered and released. */
#include <linux/bitops.h>
#include <linux/delay.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include "classes/net.h"
#include "rights/kinds.h"
#include "rights/object.h"

/* See guardrail_net_silence(). */
static int detach(const struct guardrail_held *held, void *data)
{
	if (held->right == GUARDRAIL_OBJECT && held->type == GUARDRAIL_TYPE_NETDEV && held->state) {
		netif_tx_stop_all_queues((struct net_device *)held->start);
		netif_device_detach((struct net_device *)held->start);
	}
	return 0;
}

void guardrail_net_silence(u32 domain)
{
	guardrail_walk(domain, detach, NULL);
}

static int settle_poll(const struct guardrail_held *held, void *data)
{
	struct napi_struct *napi = (struct napi_struct *)held->start;

	if (held->right != GUARDRAIL_OBJECT || held->type != GUARDRAIL_TYPE_NAPI || !held->state)
		return 0;
	/*
	 * It is scheduled, but on no CPU's list and not disabled: its poll was refused, and so not completed. It may be
	 * on its way to a list for a moment with interrupts off.
	 */
	if (test_bit(NAPI_STATE_SCHED, &napi->state) && !test_bit(NAPI_STATE_NPSVC, &napi->state) &&
	    list_empty_careful(&napi->poll_list)) {
		msleep(2);
		if (!test_bit(NAPI_STATE_NPSVC, &napi->state) && list_empty_careful(&napi->poll_list))
			clear_bit(NAPI_STATE_SCHED, &napi->state);
	}
	return 0;
}

void guardrail_net_settle(u32 domain)
{
	guardrail_walk(domain, settle_poll, NULL);
}

void guardrail_net_unregister(const struct guardrail_held *held, struct guardrail_teardown *down)
{
	if (held->right != GUARDRAIL_OBJECT || held->type != GUARDRAIL_TYPE_NETDEV || !held->state)
		return;
	unregister_netdev((struct net_device *)held->start);
	guardrail_put_object(down->domain, held->start, GUARDRAIL_TYPE_NETDEV, 0);
	down->released->netdevs++;
}

void guardrail_net_end_use(const struct guardrail_held *held, struct guardrail_teardown *down)
{
	struct napi_struct *napi = (struct napi_struct *)held->start;
	unsigned long end = jiffies + 5 * HZ;

	if (held->right != GUARDRAIL_OBJECT || held->type != GUARDRAIL_TYPE_NAPI || !held->state)
		return;
	/* It may be on a CPU's list until that CPU handles it. Nothing schedules it any more. */
	while (test_bit(NAPI_STATE_SCHED, &napi->state) && time_before(jiffies, end)) {
		settle_poll(held, NULL);
		msleep(2);
	}
	if (test_bit(NAPI_STATE_SCHED, &napi->state))
		pr_warn("domain %u: a poll does not end\n", down->domain);
	else
		napi_disable(napi);
	guardrail_put_object(down->domain, held->start, GUARDRAIL_TYPE_NAPI, 0);
}

void guardrail_net_release(const struct guardrail_held *held, struct guardrail_teardown *down)
{
	switch (held->type) {
	case GUARDRAIL_TYPE_SKB:
		guardrail_destroy_object(down->domain, held->start, GUARDRAIL_TYPE_SKB);
		if (guardrail_release_later(down, held))
			down->released->packets++;
		else
			down->released->left++;
		break;
	case GUARDRAIL_TYPE_NETDEV:
		if (held->state)
			break;
		guardrail_destroy_object(down->domain, held->start, GUARDRAIL_TYPE_NETDEV);
		free_netdev((struct net_device *)held->start);
		break;
	}
}

bool guardrail_net_free(const struct guardrail_held *held)
{
	if (held->type != GUARDRAIL_TYPE_SKB)
		return false;
	dev_kfree_skb_any((void *)held->start);
	return true;
}
