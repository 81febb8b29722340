/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The memory of packets that a driver receives to send. It may change their headers, and few drivers do, so a domain gets the
 * right to this memory with its first store there.
 */
#ifndef GUARDRAIL_RIGHTS_SENT_H
#define GUARDRAIL_RIGHTS_SENT_H

#include <linux/hash.h>
#include <linux/skbuff.h>

#include "base/kernel.h"

#define SENT_BITS 8
/* Marks a place while the right is given. */
#define SENT_BUSY 1UL

/* By domain, each in the place of its hash: packets whose memory the domain has no right to yet. 0 where a place is free. */
extern unsigned long guardrail_sent[GUARDRAIL_DOMAINS][1 << SENT_BITS];

static __always_inline unsigned long *sent_place(u32 domain, unsigned long skb)
{
	return &guardrail_sent[domain][hash_ptr((void *)skb, SENT_BITS)];
}

/**
 * sent_ends() - Forget a packet that is the domain's no longer, or whose memory it gets a right to otherwise.
 * @domain: The domain.
 * @skb: The packet.
 *
 * Return: True where the domain had no right to its memory.
 */
static __always_inline bool sent_ends(u32 domain, const struct sk_buff *skb)
{
	unsigned long *place = sent_place(domain, (unsigned long)skb), old = READ_ONCE(*place);

	/* The right is given with interrupts off, so this ends soon. */
	while (unlikely(old == ((unsigned long)skb | SENT_BUSY))) {
		cpu_relax();
		old = READ_ONCE(*place);
	}
	return old == (unsigned long)skb && cmpxchg(place, old, 0) == old;
}

/**
 * guardrail_sent_begins() - Note a packet that the domain receives to send.
 * @domain: The domain.
 * @skb: The packet.
 *
 * Context: Any but NMI.
 * Return: 0, or -ENOMEM.
 */
int guardrail_sent_begins(u32 domain, struct sk_buff *skb);

/* A bit for each domain that has received a packet to send. */
extern unsigned long guardrail_senders;

/**
 * guardrail_sent_at() - Give a domain the right to the memory of one of these packets, if it stores there.
 * @domain: The domain.
 * @skb: Where a packet may be.
 * @addr: First byte of the store.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: True where the domain got it.
 */
bool guardrail_sent_at(u32 domain, unsigned long skb, unsigned long addr, unsigned long n);

/**
 * guardrail_sent_store() - The same for any of the packets.
 * @domain: The domain.
 * @addr: First byte of the store.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: True where the domain has the right to the bytes then.
 */
bool guardrail_sent_store(u32 domain, unsigned long addr, unsigned long n);

/**
 * guardrail_sent_clear() - Forget all such packets of a domain without modules.
 * @domain: The domain.
 *
 * Context: Any.
 */
void guardrail_sent_clear(u32 domain);

#endif /* GUARDRAIL_RIGHTS_SENT_H */
