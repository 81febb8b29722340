// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Faults that a user asks for. Calls ask whether any domain is dead, and no domain has the number 0: its bit sends them here,
 * and no call pays for it while nothing was asked for.
 */
#include <linux/atomic.h>

#include "domain/entry.h"
#include "domain/inject.h"
#include "domain/ops.h"

/* The domain, and how many of its calls are left until the fault. */
static u32 domain_to_fault;
static atomic_t calls_left;
/* The same for stores of transactions; no domain has the number 0. */
u32 guardrail_store_fault;
static atomic_t stores_left;

void guardrail_inject(u32 domain, unsigned int calls)
{
	clear_bit(0, &guardrail_dead_domains);
	WRITE_ONCE(domain_to_fault, domain);
	atomic_set(&calls_left, calls);
	set_bit(0, &guardrail_dead_domains);
}

void guardrail_injected(u32 domain, unsigned long ip)
{
	if (!test_bit(0, &guardrail_dead_domains) || domain != READ_ONCE(domain_to_fault) || !atomic_dec_and_test(&calls_left))
		return;
	clear_bit(0, &guardrail_dead_domains);
	guardrail_domain_ops->faulted(domain, "injected fault", ip);
}

void guardrail_inject_store(u32 domain, unsigned int stores)
{
	atomic_set(&stores_left, stores);
	smp_store_release(&guardrail_store_fault, domain);
}

void guardrail_injected_store(u32 domain, unsigned long ip)
{
	if (likely(smp_load_acquire(&guardrail_store_fault) != domain) || !atomic_dec_and_test(&stores_left))
		return;
	WRITE_ONCE(guardrail_store_fault, 0);
	guardrail_domain_ops->faulted(domain, "injected fault", ip);
}
