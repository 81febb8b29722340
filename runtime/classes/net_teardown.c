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

/*
 * Bytes of a thunk up to the return address of guardrail_enter(). A thunk keeps six registers, and passes two addresses.
 */
#define THUNK_BEGIN 96

/* The thunk of a function of the module was entered, and not that of another. */
static bool is_call_of(const struct guardrail_record *record, unsigned long function)
{
	return record->saved.ip - function < THUNK_BEGIN;
}

/* The kernel reads what this function returns, without a look at the pointer. */
static bool give_stats(struct guardrail_record *record)
{
	struct net_device *dev = (struct net_device *)record->call.args[0];

	if (!guardrail_check_object(record->entry->domain, (unsigned long)dev, GUARDRAIL_TYPE_NETDEV) ||
	    !is_call_of(record, (unsigned long)dev->netdev_ops->ndo_get_stats))
		return false;
	record->call.result = (unsigned long)&dev->stats;
	return true;
}

void guardrail_net_entry_over(struct guardrail_record *record, bool ended)
{
	struct napi_struct *napi = (struct napi_struct *)record->call.args[0];

	if (give_stats(record))
		return;
	/* Of a poll that was ended it is not known whether it has completed. */
	if (ended || !guardrail_check_object(record->entry->domain, (unsigned long)napi, GUARDRAIL_TYPE_NAPI) ||
	    !is_call_of(record, (unsigned long)napi->poll))
		return;
	/* The kernel leaves the completion to the poll, which was not called. */
	napi_complete_done(napi, 0);
}

/* States of an instance beyond that of an enabled one: how many times in a row it looked left. */
#define NAPI_ENABLED 1
#define LOOKS 3

/**
 * struct polls - A look at the polls of a dead domain.
 * @domain: The domain.
 * @look: Number of the look, from 0.
 * @n: How many instances look as if nobody will complete them.
 */
struct polls {
	u32 domain;
	unsigned int look;
	unsigned int n;
};

/*
 * True where the instance is scheduled, is on no list and not disabled, and no thread of its own polls it. Then either a
 * CPU has just taken it from its list, or its poll was ended.
 */
static bool is_left(const struct napi_struct *napi)
{
	return test_bit(NAPI_STATE_SCHED, &napi->state) && !test_bit(NAPI_STATE_NPSVC, &napi->state) &&
	       !test_bit(NAPI_STATE_SCHED_THREADED, &napi->state) && list_empty_careful(&napi->poll_list);
}

static int settle_poll(const struct guardrail_held *held, void *data)
{
	struct napi_struct *napi = (struct napi_struct *)held->start;
	struct polls *polls = data;

	if (held->right != GUARDRAIL_OBJECT || held->type != GUARDRAIL_TYPE_NAPI || !held->state)
		return 0;
	/* As in napi_disable(): the instance is not scheduled again. */
	set_bit(NAPI_STATE_DISABLE, &napi->state);
	if (!is_left(napi))
		return 0;
	if (polls->look && held->state != NAPI_ENABLED + polls->look) {
		/* It did not look left the last time. */
		guardrail_put_object(polls->domain, held->start, GUARDRAIL_TYPE_NAPI, NAPI_ENABLED);
		return 0;
	}
	polls->n++;
	if (polls->look == LOOKS - 1)
		clear_bit(NAPI_STATE_SCHED, &napi->state);
	guardrail_put_object(polls->domain, held->start, GUARDRAIL_TYPE_NAPI, NAPI_ENABLED + polls->look + 1);
	return 0;
}

/*
 * A poll runs within one grace period. One that was taken from a list before the domain died may have put its instance
 * onto a list again; a later one is refused, and completed. So an instance that looks left three times, with two grace
 * periods between, has no poll.
 */
void guardrail_net_settle(u32 domain)
{
	struct polls polls = { .domain = domain };

	for (polls.look = 0; polls.look < LOOKS; polls.look++) {
		if (polls.look)
			synchronize_net();
		polls.n = 0;
		guardrail_walk(domain, settle_poll, &polls);
		if (!polls.n)
			break;
	}
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
	while (test_bit(NAPI_STATE_SCHED, &napi->state) && time_before(jiffies, end))
		msleep(2);
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
