// SPDX-License-Identifier: GPL-2.0-or-later
/* Interrupts that drivers request and free. */
#include <linux/interrupt.h>

#include "border/custom.h"
#include "classes/irq.h"
#include "domain/code.h"
#include "domain/interrupts.h"
#include "report/report.h"
#include "transact/transaction.h"

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

void guardrail_irq_again(unsigned int irq, irq_handler_t handler, irq_handler_t thread_fn, unsigned long flags, const char *name,
			 void *dev_id)
{
	u32 domain = guardrail_innermost_domain();

	if (!domain)
		return;
	if (request_threaded_irq(irq, handler, thread_fn, flags, name, dev_id))
		pr_warn_ratelimited("interrupt %u could not be requested again\n", irq);
	else
		guardrail_irq_note(domain, irq, (unsigned long)dev_id);
}

/* Copies how an interrupt was requested to the arguments of guardrail_irq_again(), of which the last is known. */
static bool copy_request(const struct irqaction *action, void *data)
{
	unsigned long *args = data;

	if (action->dev_id != (void *)args[5])
		return false;
	args[1] = (unsigned long)action->handler;
	args[2] = (unsigned long)action->thread_fn;
	args[3] = action->flags;
	args[4] = (unsigned long)action->name;
	return true;
}

/* A transaction frees an interrupt. */
static noinline void note_freed(const struct guardrail_action *action, unsigned int irq, unsigned long dev_id)
{
	const struct guardrail_mark mark = { .bytes = sizeof(struct guardrail_logged_call), .kind = GUARDRAIL_LOGGED_CALLED };
	struct guardrail_logged_call again = { .inverse = "guardrail_irq_again", .args = { irq, [5] = dev_id } };
	struct guardrail_transaction *tx = guardrail_transaction();

	if (!tx)
		return;
	if (guardrail_find_action(irq, copy_request, again.args))
		guardrail_transact_note(tx, &mark, &again);
	else
		guardrail_transact_irrevocable(tx, "which nothing undoes", action->function);
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
	if (is_transacting())
		note_freed(action, irq, dev_id);
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
