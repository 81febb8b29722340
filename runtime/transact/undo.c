// SPDX-License-Identifier: GPL-2.0-or-later
/* Undoing what the log of a transaction says; transact/undo.h describes it. */
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "base/symbols.h"
#include "domain/code.h"
#include "domain/ops.h"
#include "domain/thread.h"
#include "rights/buffer.h"
#include "rights/kinds.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "rights/sent.h"
#include "transact/device.h"
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

/*
 * Another thread may have given the memory away meanwhile: it frees a packet that the device has sent, for instance. What the
 * domain may not write any more stays as it is.
 */
static bool is_still_its_own(const struct guardrail_transaction *tx, unsigned long p, unsigned long n)
{
	return guardrail_first_denied(tx->domain, p, n) == p + n || object_is_on_stack((void *)p) || guardrail_is_thread_state(p, n) ||
	       guardrail_domain_ops->may_store(tx->domain, p, n) ||
	       (test_bit(tx->domain, &guardrail_senders) && guardrail_sent_at(tx->domain, tx->record->call.args[0], p, n));
}

/*
 * A lock protects what was stored while it was held. Where that has changed since the lock was released, others rely on it,
 * and what was there before is not right any more. All that was stored up to one release is compared before any of it is
 * undone, and after what was stored later is undone.
 */
static bool compare(struct guardrail_mark *mark, void *payload, void *data)
{
	const struct guardrail_transaction *tx = data;

	if (mark->kind == GUARDRAIL_LOGGED_BYTES && mark->seen == tx->compared && is_still_its_own(tx, mark->p, mark->bytes))
		mark->is_changed = memcmp((void *)mark->p, payload + guardrail_log_half(mark), mark->bytes);
	return true;
}

static bool undo_store(struct guardrail_mark *mark, void *payload, void *data)
{
	struct guardrail_transaction *tx = data;
	/* The lowest bit of the address of an addition says how wide it is. */
	unsigned long p = mark->p & ~1UL;
	long added;

	if (mark->seen && mark->seen != tx->compared) {
		tx->compared = mark->seen;
		guardrail_log_each(&tx->log, compare, tx);
	}
	if (mark->kind == GUARDRAIL_LOGGED_ADDED) {
		added = *(const long *)payload;
		if (!is_still_its_own(tx, p, 4))
			tx->given_away++;
		else if (mark->p & 1)
			atomic_long_sub(added, (atomic_long_t *)p);
		else
			atomic_sub(added, (atomic_t *)p);
	} else if (mark->kind == GUARDRAIL_LOGGED_SAVED || mark->kind == GUARDRAIL_LOGGED_PACKET) {
		if (mark->kind == GUARDRAIL_LOGGED_SAVED || guardrail_check_object(tx->domain, mark->p, GUARDRAIL_TYPE_SKB))
			put_back(mark->p, payload, mark->bytes);
	} else if (mark->kind == GUARDRAIL_LOGGED_BYTES) {
		if (!is_still_its_own(tx, mark->p, mark->bytes))
			tx->given_away++;
		else if (mark->is_changed)
			tx->conflict = true;
		else
			put_back(mark->p, payload, mark->bytes);
	}
	return true;
}

static bool look_for_device(struct guardrail_mark *mark, void *payload, void *data)
{
	struct guardrail_transaction *tx = data;

	tx->touched |= mark->kind == GUARDRAIL_LOGGED_BYTES && guardrail_device_sees(tx->domain, mark->p);
	return !tx->touched;
}

void guardrail_undo_look(struct guardrail_transaction *tx)
{
	if (!tx->touched)
		guardrail_log_each(&tx->log, look_for_device, tx);
}

void guardrail_undo_stores(struct guardrail_transaction *tx)
{
	guardrail_log_each(&tx->log, undo_store, tx);
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

/* True where the kernel uses an object in the memory: another thread has found it, and handed it over. */
static bool is_in_use(u32 domain, unsigned long p, unsigned long n)
{
	unsigned long object = guardrail_find_object(domain, p, n);
	u32 type, state;

	return guardrail_find_irq(domain, p, n) || (object && guardrail_object_any(domain, object, &type, &state) && state);
}

static void disown(struct guardrail_transaction *tx, unsigned long p, const struct guardrail_logged_owned *owned)
{
	u32 domain = tx->domain;

	/* A buffer may be known by its marks alone. */
	if (owned->kind == GUARDRAIL_KIND_FRAG)
		guardrail_buffer_grant(domain, p);
	if (is_in_use(domain, p, owned->size)) {
		tx->conflict = true;
		return;
	}
	/* The driver has freed it since, in a call that was not put off. */
	if (guardrail_disown(domain, p, owned->kind))
		return;
	guardrail_device_goes(domain, p);
	guardrail_revoke(domain, p, owned->size);
	if (owned->kind == KIND_PAGES)
		guardrail_revoke(domain, (unsigned long)virt_to_page((void *)p), sizeof(struct page));
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

/* The function of a name, which a driver could give to one of its own. */
static unsigned long inverse_of(const char *name)
{
	unsigned long function = guardrail_find_symbol(name);

	if (!function || guardrail_is_guarded(function))
		return 0;
	return str_has_prefix(name, "guardrail_") && !within_module(function, THIS_MODULE) ? 0 : function;
}

static void reverse(const struct guardrail_logged_call *made)
{
	void (*inverse)(unsigned long, unsigned long, unsigned long, unsigned long, unsigned long, unsigned long) =
		(void *)inverse_of(made->inverse);
	const unsigned long *args = made->args;

	if (inverse)
		inverse(args[0], args[1], args[2], args[3], args[4], args[5]);
	else
		pr_warn_ratelimited("a call is not undone, since the kernel has no %s\n", made->inverse);
}

static bool undo_call(struct guardrail_mark *mark, void *payload, void *data)
{
	struct guardrail_transaction *tx = data;
	const u32 *words = payload;

	switch (mark->kind) {
	case GUARDRAIL_LOGGED_OWNED:
		disown(tx, mark->p, payload);
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
	return true;
}

void guardrail_undo_calls(struct guardrail_transaction *tx)
{
	guardrail_log_each(&tx->log, undo_call, tx);
}
