// SPDX-License-Identifier: GPL-2.0-or-later
/* Pages that network drivers cut buffers from. */
#include <linux/mm.h>
#include <linux/skbuff.h>
#include <net/sock.h>

#include "border/custom.h"
#include "classes/memory.h"
#include "transact/transaction.h"

/* Drops a reference to a page from which no buffers are cut any more. If it was the last one, its rights end. */
static void let_go(u32 domain, struct page *page)
{
	if (page_ref_count(page) == 1)
		guardrail_page_take(domain, page);
	put_page(page);
}

/* The same at the end of a transaction: an entry that is undone still has the page. */
static void let_go_later(const struct guardrail_action *action, struct page *page)
{
	const struct guardrail_deferred deferred = { .call = (unsigned long)let_go, .args = { action->domain, (unsigned long)page } };
	struct guardrail_transaction *tx = is_transacting() ? guardrail_transaction() : NULL;

	if (tx && guardrail_transact_defer(tx, &deferred))
		return;
	if (tx)
		guardrail_transact_irrevocable(tx, "which cannot be put off", action->function);
	let_go(action->domain, page);
}

/*
 * skb_page_frag_refill(size, frag): makes room for a buffer, in the page that is there or in a new one. Buffers of the
 * old page may still be in use; if none is, its rights end before it is freed. Hence the reference.
 */
GUARDRAIL_CUSTOM(page_refill)
{
	struct page_frag *frag = (struct page_frag *)object_of(action, call);
	unsigned int size = size_of(action, call);
	struct page *old;

	if (!frag || !guardrail_check_write(action->domain, (unsigned long)frag, sizeof(*frag)))
		return 0;
	old = frag->page;
	if (old && !guardrail_check_write(action->domain, (unsigned long)&old->_refcount, sizeof(old->_refcount)))
		return 0;
	if (old && (page_ref_count(old) == 1 || frag->offset + size <= frag->size))
		old = NULL;
	if (old)
		get_page(old);
	call->result = skb_page_frag_refill(size, frag, (gfp_t)call->args[2]);
	if (old)
		let_go_later(action, old);
	if (call->result && guardrail_page_give(action->domain, frag->page, frag->size))
		call->result = false;
	return 1;
}
