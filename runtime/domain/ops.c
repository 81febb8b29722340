// SPDX-License-Identifier: GPL-2.0-or-later
/* The calls into upper rooms; domain/ops.h describes them. */
#include "domain/ops.h"

const struct guardrail_domain_ops *guardrail_domain_ops __ro_after_init;

void __init guardrail_domain_register(const struct guardrail_domain_ops *ops)
{
	guardrail_domain_ops = ops;
}
