/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Pointers that a domain has received from the kernel: as arguments of its entries, and as results of functions that it
 * called. It may pass them back.
 */
#ifndef GUARDRAIL_RIGHTS_RECEIVED_H
#define GUARDRAIL_RIGHTS_RECEIVED_H

#include "base/kernel.h"

/* Pointers of a domain; a new one may replace an old one of the same source. */
#define RECEIVED_WAYS 4
#define RECEIVED_SETS 256
#define RECEIVED_SOURCE (RECEIVED_WAYS * RECEIVED_SETS)
#define RECEIVED (2 * RECEIVED_SOURCE)
/* Addresses of which a search has shown that the domain may pass them. */
#define REACHED 1024

/**
 * struct guardrail_receipts - What one domain has received.
 * @pointers: The pointers in sets; 0 where a place is free.
 * @reached: Addresses that a search has found, each in the place of its hash.
 * @until: Until when they count, in jiffies.
 * @next: The place of a full set that is used next.
 *
 * All are changed without a lock, each by one store: a pointer that is lost is received again.
 */
struct guardrail_receipts {
	unsigned long pointers[RECEIVED];
	unsigned long reached[REACHED];
	unsigned long until[REACHED];
	unsigned int next;
};

/**
 * guardrail_receipts_of() - Find what a domain has received.
 * @domain: A valid domain.
 *
 * Context: Any.
 * Return: It; NULL before guardrail_received_prepare().
 */
struct guardrail_receipts *guardrail_receipts_of(u32 domain);

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
