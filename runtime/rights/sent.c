// SPDX-License-Identifier: GPL-2.0-or-later
/* The memory of packets to send; rights/sent.h describes it. */
#include "base/address.h"
#include "rights/ranges.h"
#include "rights/sent.h"
#include "rights/skb.h"

unsigned long guardrail_sent[GUARDRAIL_DOMAINS][1 << SENT_BITS];
unsigned long guardrail_senders;

/* The packet's memory that the driver may change, in two pieces or one: not data that other packets share. */
struct pieces {
	unsigned long head, n, info, n_info;
};

static struct pieces pieces_of(const struct sk_buff *skb)
{
	unsigned long head = (unsigned long)skb->head, info = head + skb_end_offset(skb);

	if (!skb_cloned(skb))
		return (struct pieces){ .head = head, .n = info - head + sizeof(struct skb_shared_info) };
	return (struct pieces){ head, skb_tail_pointer(skb) - skb->head, info, sizeof(struct skb_shared_info) };
}

static bool covers(const struct pieces *pieces, unsigned long addr, unsigned long n)
{
	unsigned long end = addr + n;

	return (addr >= pieces->head && end <= pieces->head + pieces->n) || (addr >= pieces->info && end <= pieces->info + pieces->n_info);
}

static int give(u32 domain, const struct pieces *pieces)
{
	int err = pieces->n ? guardrail_grant_fresh(domain, pieces->head, pieces->n) : 0;

	return err || !pieces->n_info ? err : guardrail_grant_fresh(domain, pieces->info, pieces->n_info);
}

int guardrail_sent_begins(u32 domain, struct sk_buff *skb)
{
	unsigned long p = (unsigned long)skb, *place = sent_place(domain, p), old = READ_ONCE(*place);
	struct pieces pieces;

	if (unlikely(!test_bit(domain, &guardrail_senders)))
		set_bit(domain, &guardrail_senders);
	if (likely(old == p || (!old && !cmpxchg(place, 0, p))))
		return 0;
	/* A packet may have ended in a way that no call shows. */
	if (!(old & SENT_BUSY) && old && !guardrail_is_skb(domain, old) && cmpxchg(place, old, p) == old)
		return 0;
	pieces = pieces_of(skb);
	return give(domain, &pieces);
}

/* Gives the right to the memory of the packet in a place, if the store goes there. */
static bool give_at(u32 domain, unsigned long *place, unsigned long addr, unsigned long n)
{
	unsigned long p = READ_ONCE(*place), head, flags;
	struct pieces pieces;
	bool given = false;

	if (!p || p & SENT_BUSY || !load_word(p + offsetof(struct sk_buff, head), &head) || addr < head || addr - head > SZ_256K)
		return false;
	local_irq_save(flags);
	/* As long as the place is busy, the packet does not end. */
	if (cmpxchg(place, p, p | SENT_BUSY) == p) {
		if (guardrail_is_skb(domain, p)) {
			pieces = pieces_of((struct sk_buff *)p);
			given = covers(&pieces, addr, n) && !give(domain, &pieces);
		}
		smp_store_release(place, given ? 0 : p);
	}
	local_irq_restore(flags);
	return given;
}

bool guardrail_sent_at(u32 domain, unsigned long skb, unsigned long addr, unsigned long n)
{
	return give_at(domain, sent_place(domain, skb), addr, n);
}

bool guardrail_sent_store(u32 domain, unsigned long addr, unsigned long n)
{
	unsigned int i;

	if (!test_bit(domain, &guardrail_senders))
		return false;
	for (i = 0; i < 1 << SENT_BITS; i++)
		if (give_at(domain, &guardrail_sent[domain][i], addr, n))
			return true;
	/* Another thread of the domain may have stored there at this moment. */
	return guardrail_check_write(domain, addr, n);
}

void guardrail_sent_clear(u32 domain)
{
	memset(guardrail_sent[domain], 0, sizeof(guardrail_sent[domain]));
}
