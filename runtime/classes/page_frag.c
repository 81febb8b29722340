// SPDX-License-Identifier: GPL-2.0-or-later
/* Pages that network drivers cut buffers from. */
#include <linux/mm.h>
#include <linux/skbuff.h>
#include <net/sock.h>

#include "border/custom.h"
#include "rights/memory.h"

/* Inlined functions count the references of pages. */
static const struct guardrail_field counted[] = {
	{ offsetof(struct page, _refcount), sizeof_field(struct page, _refcount) },
};

static int give_page(u32 domain, const struct page_frag *frag)
{
	unsigned long memory = (unsigned long)page_address(frag->page);
	int err;

	err = guardrail_grant_fields(domain, (unsigned long)frag->page, counted, ARRAY_SIZE(counted));
	return err ?: guardrail_give(domain, memory, frag->size, KIND_PAGES);
}

static void take_page(u32 domain, struct page *page)
{
	guardrail_take(domain, (unsigned long)page_address(page), KIND_PAGES);
	guardrail_revoke(domain, (unsigned long)page, sizeof(*page));
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
	if (old) {
		if (page_ref_count(old) == 1)
			take_page(action->domain, old);
		put_page(old);
	}
	if (call->result && give_page(action->domain, frag))
		call->result = false;
	return 1;
}
