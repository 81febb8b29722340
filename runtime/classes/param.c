// SPDX-License-Identifier: GPL-2.0-or-later
/* Parameters of modules, whose variables functions of the kernel set. */
#include <linux/moduleparam.h>

#include "border/custom.h"
#include "domain/code.h"
#include "domain/module.h"
#include "report/report.h"

/* Finds a parameter in the table of a module of the domain, which the domain cannot write. */
static const struct kernel_param *param_of(const struct guardrail_action *action, const struct guardrail_call *call)
{
	unsigned long p = object_of(action, call);

	if (!p)
		return NULL;
	if (guardrail_is_in_domain(action->domain, p) && !guardrail_check_write(action->domain, p, sizeof(struct kernel_param)))
		return (const struct kernel_param *)p;
	guardrail_refuse(action, call, "use of a parameter at", p, guardrail_held_at(p, action->domain), "one of the module's table");
	return NULL;
}

/* The variable has as many bytes as the value says. */
GUARDRAIL_CUSTOM(param)
{
	const struct kernel_param *param = param_of(action, call);

	if (param)
		guardrail_require_write(action, call, (unsigned long)param->arg, size_of(action, call));
	return 0;
}

/* The variable is a text. */
GUARDRAIL_CUSTOM(param_text)
{
	const struct kernel_param *param = param_of(action, call);

	if (param)
		guardrail_require_write(action, call, (unsigned long)param->str->string, param->str->maxlen);
	return 0;
}
