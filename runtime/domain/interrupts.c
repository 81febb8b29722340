// SPDX-License-Identifier: GPL-2.0-or-later
/* Requested interrupts of domains; domain/interrupts.h describes them. */
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/spinlock.h>

#include "base/limits.h"
#include "domain/interrupts.h"

#define IRQS 256

/* The noted interrupts. Those for which there is no room are not noted. */
static struct {
	unsigned long dev_id;
	unsigned int irq;
	u32 domain;	/* 0 where the place is free */
} irqs[IRQS];
/* Places from here on were never used. */
static unsigned int used;
/* Protects irqs and used against changes. Taken in any context but NMI; nothing nests inside. Readers take no lock. */
static DEFINE_RAW_SPINLOCK(lock);

bool guardrail_find_action(unsigned int irq, bool (*wanted)(const struct irqaction *action, void *data), void *data)
{
	struct irq_data *irq_data = irq_get_irq_data(irq);
	struct irqaction *action;
	struct irq_desc *desc;
	unsigned long flags;
	bool found = false;

	if (!irq_data)
		return false;
	desc = irq_data_to_desc(irq_data);
	raw_spin_lock_irqsave(&desc->lock, flags);
	for (action = desc->action; action && !found; action = action->next)
		found = wanted(action, data);
	raw_spin_unlock_irqrestore(&desc->lock, flags);
	return found;
}

void guardrail_irq_note(u32 domain, unsigned int irq, unsigned long dev_id)
{
	unsigned long flags;
	unsigned int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < IRQS && irqs[i].domain; i++)
		;
	if (i < IRQS) {
		irqs[i].dev_id = dev_id;
		irqs[i].irq = irq;
		irqs[i].domain = domain;
		WRITE_ONCE(used, max(used, i + 1));
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	if (i == IRQS)
		guardrail_limit_reached(GUARDRAIL_LIMIT_IRQS);
}

void guardrail_irq_forget(u32 domain, unsigned int irq, unsigned long dev_id)
{
	unsigned long flags;
	unsigned int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < IRQS; i++)
		if (irqs[i].domain == domain && irqs[i].irq == irq && irqs[i].dev_id == dev_id) {
			irqs[i].domain = 0;
			break;
		}
	raw_spin_unlock_irqrestore(&lock, flags);
}

bool guardrail_irq_take(u32 domain, unsigned int *irq, void **dev_id)
{
	unsigned long flags;
	unsigned int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < IRQS && irqs[i].domain != domain; i++)
		;
	if (i < IRQS) {
		*irq = irqs[i].irq;
		*dev_id = (void *)irqs[i].dev_id;
		irqs[i].domain = 0;
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return i < IRQS;
}

void guardrail_irqs_forget(u32 domain)
{
	unsigned int irq;
	void *dev_id;

	while (guardrail_irq_take(domain, &irq, &dev_id))
		;
}

static bool is_called_with(const struct irqaction *action, void *dev_id)
{
	return action->dev_id == dev_id;
}

bool guardrail_irq_is(unsigned int irq, void *dev_id)
{
	return guardrail_find_action(irq, is_called_with, dev_id);
}

unsigned long guardrail_find_irq(u32 domain, unsigned long start, unsigned long size)
{
	unsigned int i, n = READ_ONCE(used);

	for (i = 0; i < n; i++) {
		unsigned long dev_id = READ_ONCE(irqs[i].dev_id);

		if (READ_ONCE(irqs[i].domain) == domain && dev_id - start < size)
			return dev_id;
	}
	return 0;
}
