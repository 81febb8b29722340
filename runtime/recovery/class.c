// SPDX-License-Identifier: GPL-2.0-or-later
/* The classes of objects that recovery loops over; recovery/class.h describes them. */
#include "recovery/class.h"

LIST_HEAD(guardrail_recovery_classes);

void __init guardrail_recovery_register(struct guardrail_recovery_class *class)
{
	list_add_tail(&class->list, &guardrail_recovery_classes);
}

bool guardrail_outlives(u32 domain)
{
	const struct guardrail_recovery_class *class;

	for_each_class_with(class, outlives)
		if (class->outlives(domain))
			return true;
	return false;
}

void guardrail_entry_over(struct guardrail_record *record, bool ended)
{
	const struct guardrail_recovery_class *class;

	for_each_class_with(class, entry_over)
		class->entry_over(record, ended);
}
