// SPDX-License-Identifier: GPL-2.0-or-later
/* Pointers that domains have received; rights/received.h describes them. */
#include <linux/err.h>
#include <linux/hash.h>
#include <linux/sched/task_stack.h>
#include <linux/vmalloc.h>

#include "base/address.h"
#include "base/limits.h"
#include "rights/received.h"
#include "rights/tag.h"

/* Made with a domain's first module, and kept until this module goes. */
static struct guardrail_receipts *receipts[GUARDRAIL_DOMAINS];

struct guardrail_receipts *guardrail_receipts_of(u32 domain)
{
	return READ_ONCE(receipts[domain]);
}

int guardrail_received_prepare(u32 domain)
{
	struct guardrail_receipts *made;

	if (receipts[domain])
		return 0;
	made = vzalloc(sizeof(*made));
	if (!made)
		return -ENOMEM;
	if (cmpxchg(&receipts[domain], NULL, made))
		vfree(made);
	return 0;
}

void guardrail_received_clear(u32 domain)
{
	struct guardrail_receipts *of = guardrail_receipts_of(domain);

	if (of)
		memset(of, 0, sizeof(*of));
}

void guardrail_received_exit(void)
{
	u32 domain;

	for (domain = 0; domain < GUARDRAIL_DOMAINS; domain++)
		vfree(receipts[domain]);
}

void guardrail_receive(u32 domain, unsigned long p, enum guardrail_source from)
{
	struct guardrail_receipts *of = guardrail_receipts_of(domain);
	unsigned long *set;
	int i;

	if (p < KERNEL_HALF || IS_ERR_VALUE(p) || !of || p - (unsigned long)task_stack_page(current) < THREAD_SIZE)
		return;
	set = &of->pointers[from * RECEIVED_SOURCE + hash_long(p >> 3, ilog2(RECEIVED_SETS)) * RECEIVED_WAYS];
	for (i = 0; i < RECEIVED_WAYS; i++)
		if (READ_ONCE(set[i]) == p)
			return;
	for (i = 0; i < RECEIVED_WAYS; i++)
		if (!READ_ONCE(set[i]) && !cmpxchg(&set[i], 0, p))
			return;
	guardrail_limit_reached(GUARDRAIL_LIMIT_RECEIVED);
	WRITE_ONCE(set[of->next++ % RECEIVED_WAYS], p);
}

void guardrail_received_forget(u32 domain, unsigned long start, unsigned long end)
{
	struct guardrail_receipts *of = guardrail_receipts_of(domain);
	int i;

	if (!of)
		return;
	for (i = 0; i < RECEIVED; i++)
		if (READ_ONCE(of->pointers[i]) - start < end - start)
			WRITE_ONCE(of->pointers[i], 0);
	for (i = 0; i < REACHED; i++)
		if (READ_ONCE(of->reached[i]) - start < end - start)
			WRITE_ONCE(of->reached[i], 0);
}
