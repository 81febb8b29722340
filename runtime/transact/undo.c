// SPDX-License-Identifier: GPL-2.0-or-later
/* Undoing what the log of a transaction says; transact/undo.h describes it. */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "base/symbols.h"
#include "rights/kinds.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "transact/undo.h"

/* Stores as wide as the driver did: others may read the same word without a lock. */
static void put_back(unsigned long p, const void *old, u32 n)
{
	switch (n) {
	case 1:
		WRITE_ONCE(*(u8 *)p, *(const u8 *)old);
		break;
	case 2:
		WRITE_ONCE(*(u16 *)p, *(const u16 *)old);
		break;
	case 4:
		WRITE_ONCE(*(u32 *)p, *(const u32 *)old);
		break;
	case 8:
		WRITE_ONCE(*(u64 *)p, *(const u64 *)old);
		break;
	default:
		memcpy((void *)p, old, n);
	}
}

static void undo_store(const struct guardrail_mark *mark, const void *payload, void *data)
{
	if (mark->kind == GUARDRAIL_LOGGED_BYTES)
		put_back(mark->p, payload, mark->bytes);
	else if (mark->kind == GUARDRAIL_LOGGED_ADDED && mark->p & 1)
		atomic_long_sub(*(const long *)payload, (atomic_long_t *)(mark->p & ~1UL));
	else if (mark->kind == GUARDRAIL_LOGGED_ADDED)
		atomic_sub(*(const long *)payload, (atomic_t *)mark->p);
}

void guardrail_undo_stores(struct guardrail_transaction *tx)
{
	guardrail_log_each(&tx->log, undo_store, NULL);
}

static void release(unsigned long p, const struct guardrail_logged_owned *owned)
{
	switch (owned->kind) {
	case GUARDRAIL_KIND_SLAB:
		kfree((void *)p);
		break;
	case GUARDRAIL_KIND_VMALLOC:
		/* It sleeps, but in interrupts it frees later. */
		if (preemptible() || in_interrupt())
			vfree((void *)p);
		else
			pr_warn_ratelimited("%lu bytes are lost, since they cannot be freed while preemption is off\n", owned->size);
		break;
	case GUARDRAIL_KIND_PAGE:
		free_pages(p, get_order(owned->size));
		break;
	case KIND_PAGES:
		__free_pages(virt_to_page((void *)p), get_order(owned->size));
		break;
	case GUARDRAIL_KIND_FRAG:
		page_frag_free((void *)p);
		break;
	}
}

static void disown(u32 domain, unsigned long p, const struct guardrail_logged_owned *owned)
{
	/* The driver has freed it since, in a call that was not put off. */
	if (guardrail_disown(domain, p, owned->kind))
		return;
	guardrail_revoke(domain, p, owned->size);
	release(p, owned);
}

static void free_packet(u32 domain, struct sk_buff *skb)
{
	guardrail_revoke(domain, (unsigned long)skb->head, skb_end_offset(skb) + sizeof(struct skb_shared_info));
	guardrail_revoke(domain, (unsigned long)skb, sizeof(*skb));
	guardrail_destroy_skb(domain, (unsigned long)skb);
	dev_kfree_skb_any(skb);
}

static void forget(u32 domain, unsigned long p, u32 type)
{
	if (type != GUARDRAIL_TYPE_SKB)
		guardrail_destroy_object(domain, p, type);
	else if (guardrail_check_object(domain, p, type))
		free_packet(domain, (struct sk_buff *)p);
}

static void reverse(const struct guardrail_logged_call *made)
{
	void (*inverse)(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long) =
		(void *)guardrail_find_symbol(made->inverse);
	const unsigned long *args = made->args;

	if (inverse)
		inverse(args[0], args[1], args[2], args[3], args[4], args[5]);
	else
		pr_warn_ratelimited("a call is not undone, since the kernel has no %s\n", made->inverse);
}

static void undo_call(const struct guardrail_mark *mark, const void *payload, void *data)
{
	const struct guardrail_transaction *tx = data;
	const u32 *words = payload;

	switch (mark->kind) {
	case GUARDRAIL_LOGGED_OWNED:
		disown(tx->domain, mark->p, payload);
		break;
	case GUARDRAIL_LOGGED_CREATED:
		forget(tx->domain, mark->p, words[0]);
		break;
	case GUARDRAIL_LOGGED_MOVED:
		guardrail_put_object(tx->domain, mark->p, words[0], words[1]);
		break;
	case GUARDRAIL_LOGGED_CALLED:
		reverse(payload);
		break;
	}
}

void guardrail_undo_calls(struct guardrail_transaction *tx)
{
	guardrail_log_each(&tx->log, undo_call, tx);
}
