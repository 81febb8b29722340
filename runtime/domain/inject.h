/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A fault that a user asks for, to see how a driver and the programs that use it fare. */
#ifndef GUARDRAIL_DOMAIN_INJECT_H
#define GUARDRAIL_DOMAIN_INJECT_H

#include "base/kernel.h"

/**
 * guardrail_inject() - Have a domain fault in one of its next calls of the kernel; this replaces what was asked for before.
 * @domain: A valid domain.
 * @calls: In which of the calls that require something; 1 is the next one.
 *
 * Context: Any.
 */
void guardrail_inject(u32 domain, unsigned int calls);

/**
 * guardrail_injected() - Count a call, and fault if it is the one.
 * @domain: Domain that calls.
 * @ip: Address of the call.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_injected(u32 domain, unsigned long ip);

/**
 * guardrail_inject_store() - Have a domain fault at one of the next stores of its transactions.
 * @domain: A valid domain.
 * @stores: At which one; 1 is the next one.
 *
 * Context: Any.
 */
void guardrail_inject_store(u32 domain, unsigned int stores);

/* The domain that is to fault at a store; 0 for none. */
extern u32 guardrail_store_fault;

/**
 * guardrail_injects_stores() - Test whether stores are counted.
 *
 * Context: Any.
 * Return: True where some domain is to fault at a store.
 */
static inline bool guardrail_injects_stores(void)
{
	return unlikely(smp_load_acquire(&guardrail_store_fault));
}

/**
 * guardrail_injected_store() - Count a store of a transaction, and fault if it is the one.
 * @domain: Domain that stores.
 * @ip: Address of the instruction.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_injected_store(u32 domain, unsigned long ip);

#endif /* GUARDRAIL_DOMAIN_INJECT_H */
