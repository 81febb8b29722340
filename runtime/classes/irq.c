// SPDX-License-Identifier: GPL-2.0-or-later
/* Interrupts that a driver has requested: until it frees them, their handlers are called with what it named. */
#include <linux/irq.h>
#include <linux/irqdesc.h>
#include <linux/spinlock.h>

#include "border/custom.h"
#include "recovery/recover.h"

#define IRQS 256

static struct {
	unsigned long dev_id;
	unsigned int irq;
	u32 domain;	/* 0 where the place is free */
} irqs[IRQS];
static unsigned int used;
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

static bool is_called_with(const struct irqaction *action, void *dev_id)
{
	return action->dev_id == dev_id;
}

/* What is named is the pointer, the interrupt's number the value. */
GUARDRAIL_CUSTOM(irq_taken)
{
	unsigned long dev_id = object_of(action, frame), flags;
	unsigned int i;

	if (!dev_id)
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < IRQS && irqs[i].domain; i++)
		;
	if (i < IRQS) {
		irqs[i].dev_id = dev_id;
		irqs[i].irq = size_of(action, frame);
		irqs[i].domain = action->domain;
		WRITE_ONCE(used, max(used, i + 1));
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

GUARDRAIL_CUSTOM(irq_given)
{
	unsigned long dev_id = object_of(action, frame), flags;
	unsigned int irq = size_of(action, frame), i;

	if (!dev_id)
		return 0;
	if (!guardrail_find_action(irq, is_called_with, (void *)dev_id)) {
		guardrail_refuse(action, frame, "release of an interrupt with", dev_id, guardrail_held_at(dev_id, action->domain),
				 "requested interrupt");
		return 0;
	}
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < IRQS; i++)
		if (irqs[i].domain == action->domain && irqs[i].irq == irq && irqs[i].dev_id == dev_id) {
			irqs[i].domain = 0;
			break;
		}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

/* In memory of a domain, what one of its handlers is called with; 0 where there is none. */
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

void guardrail_irqs_forget(u32 domain)
{
	unsigned long flags;
	unsigned int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < IRQS; i++)
		if (irqs[i].domain == domain)
			irqs[i].domain = 0;
	raw_spin_unlock_irqrestore(&lock, flags);
}
