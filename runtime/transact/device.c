// SPDX-License-Identifier: GPL-2.0-or-later
/* The memory of domains that devices see; transact/device.h describes it. */
#include <linux/mm.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

#include "transact/device.h"

/* The most pieces of memory of a domain. With more, devices see all that is not known. */
#define MOST 32

/**
 * struct seen - The memory of a domain that devices see.
 * @n: How many pieces there are.
 * @more: There were too many.
 * @start: Where they begin.
 * @end: Where they end.
 * @registers: They are registers.
 */
struct seen {
	unsigned int n;
	bool more;
	unsigned long start[MOST], end[MOST];
	bool registers[MOST];
};

/* Protects seen. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(seen_lock);
static struct seen seen[GUARDRAIL_DOMAINS];

void guardrail_device_comes(u32 domain, unsigned long p, unsigned long n, u32 kind)
{
	struct seen *of = &seen[domain];
	unsigned long flags;

	if (kind != GUARDRAIL_KIND_IO && kind != GUARDRAIL_KIND_DMA)
		return;
	raw_spin_lock_irqsave(&seen_lock, flags);
	if (of->n < MOST) {
		of->start[of->n] = p;
		of->end[of->n] = p + n;
		of->registers[of->n++] = kind == GUARDRAIL_KIND_IO;
	} else {
		of->more = true;
	}
	raw_spin_unlock_irqrestore(&seen_lock, flags);
}

void guardrail_device_goes(u32 domain, unsigned long p)
{
	struct seen *of = &seen[domain];
	unsigned long flags;
	unsigned int i;

	raw_spin_lock_irqsave(&seen_lock, flags);
	for (i = 0; i < of->n; i++)
		if (of->start[i] == p) {
			of->n--;
			of->start[i] = of->start[of->n];
			of->end[i] = of->end[of->n];
			of->registers[i] = of->registers[of->n];
			break;
		}
	raw_spin_unlock_irqrestore(&seen_lock, flags);
}

void guardrail_device_forget(u32 domain)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&seen_lock, flags);
	seen[domain].n = 0;
	seen[domain].more = false;
	raw_spin_unlock_irqrestore(&seen_lock, flags);
}

/* True where no memory of the machine is mapped: registers that came in another way than by the calls that are known. */
static bool is_mapped_device(unsigned long p)
{
	return is_vmalloc_addr((void *)p) && !pfn_valid(vmalloc_to_pfn((void *)p));
}

enum guardrail_seen guardrail_device_sees(u32 domain, unsigned long p)
{
	const struct seen *of = &seen[domain];
	enum guardrail_seen found = GUARDRAIL_SEEN_NOT;
	unsigned long flags;
	unsigned int i;

	raw_spin_lock_irqsave(&seen_lock, flags);
	for (i = 0; i < of->n; i++)
		if (p >= of->start[i] && p < of->end[i])
			found = of->registers[i] ? GUARDRAIL_SEEN_REGISTERS : GUARDRAIL_SEEN_MEMORY;
	if (!found && of->more)
		found = GUARDRAIL_SEEN_MEMORY;
	raw_spin_unlock_irqrestore(&seen_lock, flags);
	return found != GUARDRAIL_SEEN_REGISTERS && is_mapped_device(p) ? GUARDRAIL_SEEN_REGISTERS : found;
}
