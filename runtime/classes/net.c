// SPDX-License-Identifier: GPL-2.0-or-later
/* Network devices and packets: what calls do to rights beyond the fields of their structures. */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#include "border/custom.h"
#include "border/quota.h"
#include "classes/net.h"
#include "domain/entry.h"
#include "rights/buffer.h"
#include "rights/memory.h"
#include "rights/object.h"
#include "rights/sent.h"
#include "rights/skb.h"
#include "transact/transaction.h"

/* The size of a packet's memory: the data and the info behind it. */
static unsigned long memory_of(const struct sk_buff *skb)
{
	return skb_end_offset(skb) + sizeof(struct skb_shared_info);
}

/* True where the whole slot of a byte is writable. */
static inline bool is_writable(u32 domain, unsigned long p)
{
	return is_kernel_range(p, 1) && tag_peek(tag_of(p)) == WRITABLE(domain);
}

/* Grants the memory of a packet, unless the driver may write it already. */
static int give_memory(u32 domain, const struct sk_buff *skb)
{
	unsigned long head = (unsigned long)skb->head, size = memory_of(skb);

	sent_ends(domain, skb);
	if (likely(buffer_arrives(domain, head, size)) || is_buffer_of_packet(domain, head) ||
	    (is_writable(domain, head) && is_writable(domain, head + size - 1)))
		return 0;
	return guardrail_grant_fresh(domain, head, size);
}

/* Revokes the memory of a packet. */
static __always_inline void clear_memory(u32 domain, const struct sk_buff *skb)
{
	if (!sent_ends(domain, skb) && !buffer_ends(domain, (unsigned long)skb->head, memory_of(skb)))
		guardrail_revoke(domain, (unsigned long)skb->head, memory_of(skb));
}

/* The driver receives a packet to fill, or to change its headers. */
GUARDRAIL_CUSTOM(skb_new)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	return skb ? give_memory(action->domain, skb) : 0;
}

void guardrail_unbuild(struct sk_buff *skb, bool owned)
{
	unsigned long head = (unsigned long)skb->head, size = memory_of(skb);
	u32 domain = guardrail_innermost_domain();

	if (!guardrail_check_object(domain, (unsigned long)skb, GUARDRAIL_TYPE_SKB))
		return;
	clear_memory(domain, skb);
	guardrail_revoke(domain, (unsigned long)skb, sizeof(*skb));
	guardrail_destroy_skb(domain, (unsigned long)skb);
	kfree_skb_partial(skb, true);
	if (owned)
		guardrail_give(domain, head, size, GUARDRAIL_KIND_FRAG);
	else
		guardrail_grant_fresh(domain, head, size);
}

/* The buffer was allocated as one, or is a part of a page. */
static noinline void note_built(u32 domain, unsigned long skb)
{
	const struct guardrail_mark mark = { .bytes = sizeof(struct guardrail_logged_call), .kind = GUARDRAIL_LOGGED_CALLED };
	unsigned long head = (unsigned long)((struct sk_buff *)skb)->head;
	struct guardrail_range buffer;
	bool owned = guardrail_check_owner(domain, head, GUARDRAIL_KIND_FRAG, NULL) || guardrail_buffer_owned(domain, head, &buffer);
	const struct guardrail_logged_call made = { .inverse = "guardrail_unbuild", .args = { skb, owned } };
	struct guardrail_transaction *tx = guardrail_transaction();

	if (tx)
		guardrail_transact_note(tx, &mark, &made);
}

static noinline int skb_built(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	if (!skb)
		return 0;
	/* If the packet uses a part of a buffer, all of the buffer is granted. */
	guardrail_buffer_grant(action->domain, (unsigned long)skb->head);
	guardrail_disown(action->domain, (unsigned long)skb->head, GUARDRAIL_KIND_FRAG);
	return give_memory(action->domain, skb);
}

/* A buffer of so many bytes became a packet's memory. If it was allocated as a buffer, it is freed with the packet. */
GUARDRAIL_CUSTOM(skb_built)
{
	unsigned long skb, size;

	if (is_transacting() && object_of(action, call))
		note_built(action->domain, object_of(action, call));
	if (likely(usual_pointer(action, call, &skb) && usual_size(action, call, &size) &&
		   buffer_moves(action->domain, (unsigned long)((struct sk_buff *)skb)->head, size))) {
		guardrail_count_owned(action->domain, -size);
		return 0;
	}
	return skb_built(action, call);
}

/* The packet loses its memory, but remains a packet. */
GUARDRAIL_CUSTOM(skb_data_gone)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	if (skb)
		clear_memory(action->domain, skb);
	return 0;
}

/* The kernel frees the memory that a packet had, which the log of a transaction may name. */
static noinline void loses_memory(const struct guardrail_action *action)
{
	struct guardrail_transaction *tx = guardrail_transaction();

	if (tx)
		guardrail_transact_irrevocable(tx, "which frees the memory of a packet", action->function);
}

/* __skb_pad(skb, more): the packet loses its memory, unless there is room in it. */
GUARDRAIL_CUSTOM(skb_pad_begins)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	if (!skb || (!skb_cloned(skb) && skb_tailroom(skb) >= (int)call->args[1]))
		return 0;
	clear_memory(action->domain, skb);
	if (is_transacting())
		loses_memory(action);
	return 0;
}

/* A page was passed on with a packet. A driver that uses it again holds references of its own. */
static void page_gone(u32 domain, struct page *page)
{
	guardrail_take(domain, (unsigned long)page_address(page), KIND_PAGES);
	if (page_ref_count(page) == 1)
		guardrail_revoke(domain, (unsigned long)page, sizeof(*page));
}

static noinline int skb_gone(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);
	int i;

	stop_dead(action, call);
	if (!skb)
		return 0;
	if (unlikely(!guardrail_is_skb(action->domain, (unsigned long)skb) || !skb->head)) {
		guardrail_refuse_object(action, call, (unsigned long)skb, GUARDRAIL_TYPE_SKB, GUARDRAIL_ANY_STATE);
		return 0;
	}
	if (unlikely(refcount_read(&skb->users) > 1))
		return 0;
	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++)
		page_gone(action->domain, skb_frag_page(&skb_shinfo(skb)->frags[i]));
	clear_memory(action->domain, skb);
	if (unlikely(!skb_goes(action->domain, (unsigned long)skb)))
		/* Another thread of the module has released it at this moment. */
		guardrail_refuse_object(action, call, (unsigned long)skb, GUARDRAIL_TYPE_SKB, GUARDRAIL_ANY_STATE);
	return 0;
}

/*
 * The packet is the kernel's, with the pages that the driver has added to it. That does not hold
 * where the driver dropped one reference of several.
 */
GUARDRAIL_CUSTOM(skb_gone)
{
	unsigned long p;

	/*
	 * Mostly the memory is in one piece. Then exchanging the tags is nearly all.
	 */
	if (likely(usual_pointer(action, call, &p) && !READ_ONCE(guardrail_dead_domains) && is_usual_skb(action->domain, p))) {
		struct sk_buff *skb = (struct sk_buff *)p;

		if (likely(refcount_read(&skb->users) == 1 && !skb_shinfo(skb)->nr_frags)) {
			clear_memory(action->domain, skb);
			if (likely(skb_goes(action->domain, p)))
				return 0;
		}
	}
	return skb_gone(action, call);
}

/*
 * The driver receives a packet to send: it may change headers, and the info behind the data. It
 * does not write data that other packets share; drivers copy that first.
 */
GUARDRAIL_CUSTOM(skb_send)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	return skb ? guardrail_sent_begins(action->domain, skb) : 0;
}

/*
 * The entry was ended, and it is unknown whether it sent the packet. So the packet is dropped,
 * unless it is freed already.
 */
static void drop(u32 domain, struct sk_buff *skb, struct guardrail_call *call)
{
	call->result = NETDEV_TX_OK;
	if (!guardrail_check_object(domain, (unsigned long)skb, GUARDRAIL_TYPE_SKB))
		return;
	clear_memory(domain, skb);
	skb_goes(domain, (unsigned long)skb);
	dev_kfree_skb_any(skb);
}

/* A packet that was not accepted stays the kernel's. One that was may be freed already. */
GUARDRAIL_CUSTOM(skb_sent)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	if (skb && was_ended(call)) {
		drop(action->domain, skb, call);
		return 0;
	}
	if (!skb || dev_xmit_complete((int)call->result))
		return 0;
	clear_memory(action->domain, skb);
	skb_goes(action->domain, (unsigned long)skb);
	return 0;
}

/* Inlined functions write these fields of a queue. */
static const struct guardrail_field queue_fields[] = {
	{ offsetof(struct netdev_queue, _xmit_lock), sizeof_field(struct netdev_queue, _xmit_lock) },
	{ offsetof(struct netdev_queue, xmit_lock_owner), sizeof_field(struct netdev_queue, xmit_lock_owner) },
	{ offsetof(struct netdev_queue, trans_start), sizeof_field(struct netdev_queue, trans_start) },
	{ offsetof(struct netdev_queue, state), sizeof_field(struct netdev_queue, state) },
#ifdef CONFIG_BQL
	{ offsetof(struct netdev_queue, dql), sizeof_field(struct netdev_queue, dql) },
#endif
};

/* A device was allocated: the driver gets its private memory, of the size in the value, and fields of its queues. */
GUARDRAIL_CUSTOM(netdev_new)
{
	struct net_device *dev = (struct net_device *)object_of(action, call);
	unsigned int i;
	int err;

	if (!dev)
		return 0;
	err = guardrail_give(action->domain, (unsigned long)netdev_priv(dev), size_of(action, call), KIND_PRIVATE);
	for (i = 0; i < dev->num_tx_queues && !err; i++)
		err = guardrail_grant_fields(action->domain, (unsigned long)netdev_get_tx_queue(dev, i), queue_fields,
					   ARRAY_SIZE(queue_fields));
	return err;
}

/* A device is about to be registered. */
GUARDRAIL_CUSTOM(netdev_comes)
{
	struct net_device *dev = (struct net_device *)object_of(action, call);

	if (dev)
		guardrail_netdev_comes(dev);
	return 0;
}

/* The NAPI instances of the device are freed with it, and none may be enabled. */
GUARDRAIL_CUSTOM(polls_off)
{
	struct net_device *dev = (struct net_device *)object_of(action, call);
	struct napi_struct *napi;

	if (!dev)
		return 0;
	list_for_each_entry(napi, &dev->napi_list, dev_list)
		if (guardrail_object_state(action->domain, (unsigned long)napi, GUARDRAIL_TYPE_NAPI) > 0) {
			guardrail_refuse(action, call, "release with an enabled NAPI instance, at", (unsigned long)napi, "object in use", "no object");
			break;
		}
	return 0;
}

GUARDRAIL_CUSTOM(netdev_gone)
{
	struct net_device *dev = (struct net_device *)object_of(action, call);
	unsigned int i;

	if (!dev)
		return 0;
	guardrail_take(action->domain, (unsigned long)netdev_priv(dev), KIND_PRIVATE);
	for (i = 0; i < dev->num_tx_queues; i++)
		guardrail_revoke(action->domain, (unsigned long)netdev_get_tx_queue(dev, i), sizeof(struct netdev_queue));
	guardrail_revoke(action->domain, (unsigned long)dev, sizeof(*dev));
	return 0;
}

/* get_strings(device, set, text) */
static unsigned long strings_size(const struct guardrail_call *call)
{
	struct net_device *dev = (struct net_device *)call->args[0];
	int n = -1;

	if (dev->ethtool_ops && dev->ethtool_ops->get_sset_count)
		n = dev->ethtool_ops->get_sset_count(dev, (int)call->args[1]);
	return n > 0 ? (unsigned long)n * ETH_GSTRING_LEN : 0;
}

GUARDRAIL_CUSTOM(ethtool_strings)
{
	unsigned long p = object_of(action, call), size = p ? strings_size(call) : 0;

	return size ? guardrail_give(action->domain, p, size, KIND_LENT) : 0;
}

/* get_regs(device, regs, registers): the driver itself says the size. */
static unsigned long regs_size(const struct guardrail_call *call)
{
	struct net_device *dev = (struct net_device *)call->args[0];
	int size = 0;

	if (dev->ethtool_ops && dev->ethtool_ops->get_regs_len)
		size = dev->ethtool_ops->get_regs_len(dev);
	return size > 0 ? size : 0;
}

GUARDRAIL_CUSTOM(ethtool_regs)
{
	unsigned long p = object_of(action, call), size = p ? regs_size(call) : 0;

	return size ? guardrail_give(action->domain, p, size, KIND_LENT) : 0;
}

/* get_rxfh(device, table, key, function), as up to 6.7: the driver itself says the sizes of table and key. */
GUARDRAIL_CUSTOM(ethtool_rxfh)
{
	struct net_device *dev = (struct net_device *)call->args[0];
	const struct ethtool_ops *ops;
	int err;

	if (!applies(action, call))
		return 0;
	ops = dev->ethtool_ops;
	if (!__builtin_types_compatible_p(typeof(ops->get_rxfh), int (*)(struct net_device *, u32 *, u8 *, u8 *)))
		return 0;
	err = guardrail_lend(action->domain, call->args[1], ops->get_rxfh_indir_size ? 4UL * ops->get_rxfh_indir_size(dev) : 0);
	err = err ?: guardrail_lend(action->domain, call->args[2], ops->get_rxfh_key_size ? ops->get_rxfh_key_size(dev) : 0);
	return err ?: guardrail_lend(action->domain, call->args[3], 1);
}

GUARDRAIL_CUSTOM(ethtool_rxfh_end)
{
	int i;

	for (i = 1; i <= 3; i++)
		guardrail_take(action->domain, call->args[i], KIND_LENT);
	return 0;
}

static noinline int frag_new(const struct guardrail_action *action, struct guardrail_call *call)
{
	unsigned long p = object_of(action, call), size = size_of(action, call);
	int err;

	if (!p)
		return 0;
	err = guardrail_give(action->domain, p, size, GUARDRAIL_KIND_FRAG);
	guardrail_check_quota(action, call, p, size);
	return err;
}

/* The driver has allocated a buffer. */
GUARDRAIL_CUSTOM(frag_new)
{
	unsigned long p, size;

	if (likely(usual_pointer(action, call, &p) && usual_size(action, call, &size) && buffer_begins(action->domain, p, size))) {
		if (is_transacting())
			guardrail_transact_owned(action->domain, p, size, GUARDRAIL_KIND_FRAG);
		guardrail_count_owned(action->domain, size);
		guardrail_check_quota(action, call, p, size);
		return 0;
	}
	return frag_new(action, call);
}

/* A buffer is released by any address in its first page. */
GUARDRAIL_CUSTOM(frag_free)
{
	unsigned long p = object_of(action, call), start, size;

	if (!p)
		return 0;
	guardrail_buffer_grant(action->domain, p);
	for (start = p; start > p - PAGE_SIZE; start = (start - 1) & ~(SMP_CACHE_BYTES - 1UL)) {
		if (!guardrail_check_owner(action->domain, start, GUARDRAIL_KIND_FRAG, &size) || size <= p - start)
			continue;
		guardrail_take(action->domain, start, GUARDRAIL_KIND_FRAG);
		return 0;
	}
	guardrail_refuse(action, call, "release of", p, "no buffer", "one");
	return 0;
}

/* A packet that an entry adds data to, as answers to dumps are. Its fields stay the kernel's. */
GUARDRAIL_CUSTOM(skb_lent)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	return skb ? guardrail_lend(action->domain, (unsigned long)skb->head, skb_end_offset(skb)) : 0;
}

GUARDRAIL_CUSTOM(skb_lent_end)
{
	struct sk_buff *skb = (struct sk_buff *)object_of(action, call);

	if (skb)
		guardrail_take(action->domain, (unsigned long)skb->head, KIND_LENT);
	return 0;
}
