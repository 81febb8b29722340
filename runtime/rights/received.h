/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Pointers that a domain has received from the kernel: as arguments of its entries, and as results of functions that it
 * called. It may pass them back.
 */
#ifndef GUARDRAIL_RIGHTS_RECEIVED_H
#define GUARDRAIL_RIGHTS_RECEIVED_H

#include <linux/hash.h>
#include <linux/jiffies.h>

#include "base/kernel.h"

/* Pointers of a domain; a new one may replace an old one of the same source. */
#define RECEIVED_WAYS 4
#define RECEIVED_SETS 256
#define RECEIVED_SOURCE (RECEIVED_WAYS * RECEIVED_SETS)
#define RECEIVED (2 * RECEIVED_SOURCE)
/* Addresses of which a search has shown that the domain may pass them. */
#define REACHED 1024
/* How long the result of a search counts, in jiffies. */
#define FRESH HZ

/**
 * struct guardrail_reached - An address that a search has found.
 * @p: The address.
 * @until: Until when it counts, in jiffies.
 */
struct guardrail_reached {
	unsigned long p, until;
};

/**
 * struct guardrail_receipts - What one domain has received.
 * @pointers: The pointers in sets; 0 where a place is free.
 * @reached: What searches have found, each in the place of its hash.
 * @next: The place of a full set that is used next.
 *
 * All are changed without a lock, each by one store: a pointer that is lost is received again.
 */
struct guardrail_receipts {
	unsigned long pointers[RECEIVED];
	struct guardrail_reached reached[REACHED];
	unsigned int next;
};

/* By domain: made with its first module. */
extern struct guardrail_receipts *guardrail_receipts[GUARDRAIL_DOMAINS];

/**
 * receipts_of() - Find what a domain has received.
 * @domain: A valid domain.
 *
 * Context: Any.
 * Return: It; NULL before guardrail_received_prepare().
 */
static __always_inline struct guardrail_receipts *receipts_of(u32 domain)
{
	return READ_ONCE(guardrail_receipts[domain]);
}

/* The place that an address has in struct guardrail_receipts. */
static __always_inline struct guardrail_reached *reached_place(struct guardrail_receipts *of, unsigned long p)
{
	return &of->reached[hash_long(p, ilog2(REACHED))];
}

/**
 * is_fresh() - Test for an address that a search has found a short time ago.
 * @of: What the domain has received.
 * @p: The address.
 *
 * Context: Any.
 * Return: True where one has.
 */
static __always_inline bool is_fresh(struct guardrail_receipts *of, unsigned long p)
{
	const struct guardrail_reached *reached = reached_place(of, p);

	return READ_ONCE(reached->p) == p && (long)(jiffies - READ_ONCE(reached->until)) < 0;
}

/* Added to an address in struct guardrail_reached: it is that of a device, or of a NAPI instance of the domain. */
#define REACHED_DEVICE 1
#define REACHED_NAPI 2

/**
 * reached_now() - Note what has just been found.
 * @of: What the domain has received.
 * @p: The address, with REACHED_DEVICE or REACHED_NAPI added where it is one.
 *
 * Context: Any.
 */
static inline void reached_now(struct guardrail_receipts *of, unsigned long p)
{
	struct guardrail_reached *reached = reached_place(of, p);

	WRITE_ONCE(reached->until, jiffies + FRESH);
	WRITE_ONCE(reached->p, p);
}

/**
 * reached_no_more() - Forget what was found.
 * @of: What the domain has received.
 * @p: As for reached_now().
 *
 * Context: Any.
 */
static inline void reached_no_more(struct guardrail_receipts *of, unsigned long p)
{
	struct guardrail_reached *reached = reached_place(of, p);

	if (READ_ONCE(reached->p) == p)
		WRITE_ONCE(reached->p, 0);
}

/**
 * guardrail_was_received() - Test for an address that a domain has received itself.
 * @of: What the domain has received.
 * @p: The address.
 *
 * Context: Any.
 * Return: True where it is among @of.
 */
bool guardrail_was_received(struct guardrail_receipts *of, unsigned long p);

/**
 * guardrail_received_prepare() - Make room for what a domain receives.
 * @domain: A valid domain.
 *
 * Context: May sleep.
 * Return: 0 or -ENOMEM.
 */
int guardrail_received_prepare(u32 domain);

/**
 * guardrail_received_clear() - Forget all that a domain has received.
 * @domain: A valid domain.
 *
 * Context: Any.
 */
void guardrail_received_clear(u32 domain);

/**
 * guardrail_received_exit() - Free all room; no domain is left.
 */
void guardrail_received_exit(void);

/**
 * enum guardrail_source - Where a pointer came from.
 * @GUARDRAIL_FROM_ENTRY: An argument of an entry.
 * @GUARDRAIL_FROM_CALL: A function that the domain called. There are fewer of these, and they are kept apart.
 */
enum guardrail_source {
	GUARDRAIL_FROM_ENTRY,
	GUARDRAIL_FROM_CALL,
};

/**
 * guardrail_receive() - Note a pointer.
 * @domain: Domain that received it.
 * @p: The pointer; nothing is noted of errors, and of one into user space or the current stack.
 * @from: Where it came from.
 *
 * Context: Any.
 */
void guardrail_receive(u32 domain, unsigned long p, enum guardrail_source from);

/**
 * guardrail_received_forget() - Forget pointers into memory that is gone.
 * @domain: Domain that gave it up.
 * @start: First byte of the memory.
 * @end: Byte behind its last.
 *
 * Context: Any.
 */
void guardrail_received_forget(u32 domain, unsigned long start, unsigned long end);

#endif /* GUARDRAIL_RIGHTS_RECEIVED_H */
