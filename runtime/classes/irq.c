// SPDX-License-Identifier: GPL-2.0-or-later
/* Interrupts that drivers request and free. */
#include <linux/interrupt.h>

#include "border/custom.h"
#include "domain/interrupts.h"
#include "report/report.h"

static bool is_called_with(const struct irqaction *action, void *dev_id)
{
	return action->dev_id == dev_id;
}

/* An interrupt was requested: the pointer is the argument of its handler, the value its number. */
GUARDRAIL_CUSTOM(irq_taken)
{
	unsigned long dev_id = object_of(action, call);

	if (dev_id)
		guardrail_irq_note(action->domain, size_of(action, call), dev_id);
	return 0;
}

/* An interrupt is about to be freed. */
GUARDRAIL_CUSTOM(irq_given)
{
	unsigned long dev_id = object_of(action, call);
	unsigned int irq = size_of(action, call);

	if (!dev_id)
		return 0;
	if (guardrail_find_action(irq, is_called_with, (void *)dev_id))
		guardrail_irq_forget(action->domain, irq, dev_id);
	else
		guardrail_refuse(action, call, "release of an interrupt with", dev_id, guardrail_held_at(dev_id, action->domain),
				 "requested interrupt");
	return 0;
}
