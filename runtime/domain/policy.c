// SPDX-License-Identifier: GPL-2.0-or-later
/* The policy after a violation; domain/policy.h describes it. */
#include <linux/moduleparam.h>
#include <linux/string.h>

#include "domain/module.h"
#include "domain/policy.h"

static const char *const policies[] = {
	[GUARDRAIL_POLICY_LOG] = "log", [GUARDRAIL_POLICY_OOPS] = "oops",
	[GUARDRAIL_POLICY_FAIL] = "fail", [GUARDRAIL_POLICY_RECOVER] = "recover",
};
static unsigned int policy = GUARDRAIL_POLICY_LOG;

bool guardrail_policy_refuses(enum guardrail_policy wanted, const struct guardrail_module *guarded)
{
	if (wanted == GUARDRAIL_POLICY_LOG || (u64)guarded->ruled * 100 >= (u64)guarded->imported * guarded->threshold)
		return false;
	pr_err("policy '%s' refuses %s: %u of its %u imports are under a rule, less than %u%%; guard it with --trust or --threshold, or use policy 'log'\n",
	       policies[wanted], guarded->name, guarded->ruled, guarded->imported, guarded->threshold);
	return true;
}

void guardrail_set_policy(enum guardrail_policy wanted)
{
	WRITE_ONCE(policy, wanted);
}

static int set_policy(const char *value, const struct kernel_param *param)
{
	int i = sysfs_match_string(policies, value);

	if (i < 0) {
		pr_err("the policy is 'log', 'oops', 'fail' or 'recover', not '%.*s'\n", (int)strcspn(value, "\n"), value);
		return i;
	}
	return guardrail_change_policy(i);
}

static int get_policy(char *value, const struct kernel_param *param)
{
	return sprintf(value, "%s\n", policies[READ_ONCE(policy)]);
}

static const struct kernel_param_ops policy_ops = { .set = set_policy, .get = get_policy };
module_param_cb(policy, &policy_ops, NULL, 0644);
MODULE_PARM_DESC(policy, "after a violation: log (go on), oops (end the thread), fail (end the call of the module) or recover (that, and begin the module anew)");

enum guardrail_policy guardrail_policy(void)
{
	return READ_ONCE(policy);
}

bool guardrail_ends_entries(void)
{
	return READ_ONCE(policy) >= GUARDRAIL_POLICY_FAIL;
}

bool guardrail_ends_threads(void)
{
	return READ_ONCE(policy) != GUARDRAIL_POLICY_LOG;
}
