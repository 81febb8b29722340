// SPDX-License-Identifier: GPL-2.0-or-later
/* Pointers that domains have received; rights/received.h describes them. */
#include <linux/err.h>
#include <linux/sched/task_stack.h>
#include <linux/vmalloc.h>

#include "base/address.h"
#include "base/limits.h"
#include "rights/received.h"
#include "rights/tag.h"

/* Kept until this module goes. */
struct guardrail_receipts *guardrail_receipts[GUARDRAIL_DOMAINS];

int guardrail_received_prepare(u32 domain)
{
	struct guardrail_receipts *made;

	if (guardrail_receipts[domain])
		return 0;
	made = vzalloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	if (cmpxchg(&guardrail_receipts[domain], NULL, made))
		vfree(made);
	return 0;
}

void guardrail_received_clear(u32 domain)
{
	struct guardrail_receipts *of = receipts_of(domain);

	if (of)
		memset(of, 0, sizeof(*of));
}

void guardrail_received_exit(void)
{
	u32 domain;

	for (domain = 0; domain < GUARDRAIL_DOMAINS; domain++)
		vfree(guardrail_receipts[domain]);
}

/* The places of one source that an address may have. */
static unsigned long *set_of(struct guardrail_receipts *of, unsigned long p, enum guardrail_source from)
{
	return &of->pointers[from * RECEIVED_SOURCE + hash_long(p >> 3, ilog2(RECEIVED_SETS)) * RECEIVED_WAYS];
}

void guardrail_receive(u32 domain, unsigned long p, enum guardrail_source from)
{
	struct guardrail_receipts *of = receipts_of(domain);
	unsigned long *set;
	int i;

	if (p < KERNEL_HALF || IS_ERR_VALUE(p) || !of || p - (unsigned long)task_stack_page(current) < THREAD_SIZE)
		return;
	set = set_of(of, p, from);
	for (i = 0; i < RECEIVED_WAYS; i++)
		if (READ_ONCE(set[i]) == p)
			return;
	for (i = 0; i < RECEIVED_WAYS; i++)
		if (!READ_ONCE(set[i]) && !cmpxchg(&set[i], 0, p))
			return;
	guardrail_limit_reached(GUARDRAIL_LIMIT_RECEIVED);
	WRITE_ONCE(set[of->next++ % RECEIVED_WAYS], p);
}

bool guardrail_was_received(struct guardrail_receipts *of, unsigned long p)
{
	enum guardrail_source from;
	int i;

	for (from = GUARDRAIL_FROM_ENTRY; from <= GUARDRAIL_FROM_CALL; from++) {
		const unsigned long *set = set_of(of, p, from);

		for (i = 0; i < RECEIVED_WAYS; i++)
			if (READ_ONCE(set[i]) == p)
				return true;
	}
	return false;
}

void guardrail_received_forget(u32 domain, unsigned long start, unsigned long end)
{
	struct guardrail_receipts *of = receipts_of(domain);
	int i;

	if (!of)
		return;
	for (i = 0; i < RECEIVED; i++)
		if (READ_ONCE(of->pointers[i]) - start < end - start)
			WRITE_ONCE(of->pointers[i], 0);
	for (i = 0; i < REACHED; i++)
		if (READ_ONCE(of->reached[i].p) - start < end - start)
			WRITE_ONCE(of->reached[i].p, 0);
}
