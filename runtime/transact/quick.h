/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Logging the usual store of a transaction in line: it is aligned, in memory that may be read, and nothing is asked of it. */
#ifndef GUARDRAIL_TRANSACT_QUICK_H
#define GUARDRAIL_TRANSACT_QUICK_H

#include <linux/hardirq.h>
#include <linux/mm.h>

#include "domain/inject.h"
#include "rights/tag.h"
#include "transact/transaction.h"

/* The first byte of instructions with a lock prefix. What these add is logged. */
#define INSN_LOCK 0xf0

/* True where a page holds no registers, which must not be read. Those of the stack are asked about each time. */
static __always_inline bool is_plain(const struct guardrail_transaction *tx, unsigned long addr)
{
	return addr < VMALLOC_START || tx->plain[addr / PAGE_SIZE % GUARDRAIL_PLAIN] == addr / PAGE_SIZE;
}

/* True for a store that the tags allow, while a transaction keeps checks from finding them. */
static __always_inline bool is_usual(unsigned long addr, unsigned long n, unsigned long domain)
{
	return addr >= KERNEL_HALF && addr % GUARDRAIL_SLOT + n <= GUARDRAIL_SLOT && tag_peek(tag_of(addr)) == WRITABLE(domain);
}

/**
 * quick_store() - Log a store that is about to happen, where that takes little.
 * @addr: First byte.
 * @n: Number of bytes.
 * @domain: Domain that stores.
 * @ip: The instruction, whose code is there.
 *
 * Context: Any but NMI.
 * Return: False where the slow path has to decide.
 */
static __always_inline bool quick_store(unsigned long addr, unsigned long n, unsigned long domain, unsigned long ip)
{
	struct guardrail_transaction *tx = guardrail_quick_one();
	struct guardrail_log_page *page;
	struct guardrail_mark *mark;
	u64 *old;

	if (!tx || in_nmi() || !is_usual(addr, n, domain) || !is_plain(tx, addr) || *(const u8 *)ip == INSN_LOCK || guardrail_injects_stores())
		return false;
	page = tx->log.last;
	if (page->used + GUARDRAIL_LOG_QUICK > sizeof(page->room))
		return false;
	old = (u64 *)(page->room + page->used);
	mark = (struct guardrail_mark *)(old + 2);
	if (n == 8)
		*old = READ_ONCE(*(u64 *)addr);
	else if (n == 4)
		*old = READ_ONCE(*(u32 *)addr);
	else if (n == 2)
		*old = READ_ONCE(*(u16 *)addr);
	else if (n == 1)
		*old = READ_ONCE(*(u8 *)addr);
	else
		return false;
	mark->p = addr;
	*(u64 *)&mark->bytes = n;
	page->used += GUARDRAIL_LOG_QUICK;
	tx->stores++;
	return true;
}

#endif /* GUARDRAIL_TRANSACT_QUICK_H */
