// SPDX-License-Identifier: GPL-2.0-or-later
/* Actions at calls that register something with the kernel, or undo that. */
#include <linux/string.h>

#include "border/action.h"
#include "domain/registrations.h"
#include "transact/transaction.h"

int guardrail_values(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long *values, unsigned int most)
{
	unsigned int i, n = min_t(u32, action->type, most);

	for (i = 0; i < n; i++) {
		const struct guardrail_value *value = i == 0 ? &action->pointer : i == 1 ? &action->size : &action->more[i - 2];

		if ((i > 1 && i - 2 >= action->n_more) || !value_of(value, call, &values[i]))
			return -ENOENT;
	}
	return n;
}

/* Reads what a call registers or undoes; false where nothing is to be done. */
static bool read(const struct guardrail_action *action, const struct guardrail_call *call, struct guardrail_registration *read)
{
	int n;

	if (!guardrail_applies(action, call))
		return false;
	*read = (struct guardrail_registration){ .domain = action->domain };
	n = guardrail_values(action, call, read->args, GUARDRAIL_UNDO_ARGS);
	if (n < 0)
		return false;
	read->n = n;
	strscpy(read->function, action->function, sizeof(read->function));
	strscpy(read->inverse, action->inverse, sizeof(read->inverse));
	return true;
}

static noinline void irrevocable(const struct guardrail_action *action)
{
	struct guardrail_transaction *tx = guardrail_transaction();

	if (tx)
		guardrail_transact_irrevocable(tx, "which nothing undoes", action->function);
}

int guardrail_do_registers(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_registration made;

	if (!read(action, call, &made))
		return 0;
	guardrail_registration_note(&made);
	if (is_transacting())
		irrevocable(action);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_registers);

int guardrail_do_unregisters(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_registration undone;

	if (!read(action, call, &undone))
		return 0;
	guardrail_registration_forget(&undone, action->from);
	if (is_transacting())
		irrevocable(action);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_unregisters);
