// SPDX-License-Identifier: GPL-2.0-or-later
/* Interrupts that drivers request and free. */
#include <linux/interrupt.h>

#include "border/custom.h"
#include "domain/code.h"
#include "domain/interrupts.h"
#include "report/report.h"

/* An interrupt was requested: the pointer is the argument of its handler, the value its number. */
GUARDRAIL_CUSTOM(irq_taken)
{
	unsigned long dev_id = object_of(action, call);

	if (dev_id)
		guardrail_irq_note(action->domain, size_of(action, call), dev_id);
	return 0;
}

/**
 * struct wanted - A handler that is looked for.
 * @dev_id: Argument of the handler.
 * @any: Any argument will do.
 * @others: The kernel, or a driver that is not guarded, handles the interrupt.
 */
struct wanted {
	void *dev_id;
	bool any, others;
};

static bool is_guarded(const struct irqaction *action, void *data)
{
	struct wanted *wanted = data;
	bool guarded = guardrail_is_guarded((unsigned long)action->handler) || guardrail_is_guarded((unsigned long)action->thread_fn);

	wanted->others |= !guarded;
	return guarded && (wanted->any || action->dev_id == wanted->dev_id);
}

/* An interrupt is about to be freed. */
GUARDRAIL_CUSTOM(irq_given)
{
	unsigned long dev_id = object_of(action, call);
	unsigned int irq = size_of(action, call);
	struct wanted wanted = { .dev_id = (void *)dev_id };

	if (!dev_id && !guardrail_find_action(irq, is_guarded, &wanted) && wanted.others)
		guardrail_refuse(action, call, "release of an interrupt with", dev_id, "one of others", "requested interrupt");
	if (!dev_id)
		return 0;
	if (guardrail_irq_is(irq, (void *)dev_id))
		guardrail_irq_forget(action->domain, irq, dev_id);
	else
		guardrail_refuse(action, call, "release of an interrupt with", dev_id, guardrail_held_at(dev_id, action->domain),
				 "requested interrupt");
	return 0;
}

/* An interrupt is disabled or enabled: others may share it, but none handles it alone. */
GUARDRAIL_CUSTOM(irq_used)
{
	unsigned int irq = size_of(action, call);
	struct wanted wanted = { .any = true };

	if (!guardrail_find_action(irq, is_guarded, &wanted) && wanted.others)
		guardrail_refuse(action, call, "use of interrupt", irq, "one of others", "requested interrupt");
	return 0;
}
