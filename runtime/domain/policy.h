/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The policy: what follows a violation. The module parameter "policy" sets it. */
#ifndef GUARDRAIL_DOMAIN_POLICY_H
#define GUARDRAIL_DOMAIN_POLICY_H

#include "base/kernel.h"

/**
 * enum guardrail_policy - What follows a violation.
 * @GUARDRAIL_POLICY_LOG: The module continues.
 * @GUARDRAIL_POLICY_OOPS: The thread ends.
 * @GUARDRAIL_POLICY_FAIL: The entry ends.
 * @GUARDRAIL_POLICY_RECOVER: The entry ends, and the domain recovers.
 */
enum guardrail_policy {
	GUARDRAIL_POLICY_LOG,
	GUARDRAIL_POLICY_OOPS,
	GUARDRAIL_POLICY_FAIL,
	GUARDRAIL_POLICY_RECOVER,
};

/**
 * guardrail_policy() - Read the policy.
 *
 * Context: Any.
 * Return: The policy that holds now; a user may change it at any time.
 */
enum guardrail_policy guardrail_policy(void);

/**
 * guardrail_policy_refuses() - Test whether a policy ends calls of a module too few of whose imports are under a rule.
 * @wanted: The policy.
 * @guarded: The module.
 *
 * Without rules, a violation may be missed, and what a call hands over is not taken back. The log says what is refused.
 *
 * Context: Any.
 * Return: True where the module must not run under the policy.
 */
bool guardrail_policy_refuses(enum guardrail_policy wanted, const struct guardrail_module *guarded);

/**
 * guardrail_set_policy() - Set the policy.
 * @wanted: The policy; the caller holds the lock of the list of modules, and none of these refuses it.
 *
 * Context: Any.
 */
void guardrail_set_policy(enum guardrail_policy wanted);

/**
 * guardrail_ends_entries() - Test whether an entry ends after a violation in it.
 *
 * Context: Any.
 * Return: True for the policies "fail" and "recover".
 */
bool guardrail_ends_entries(void);

/**
 * guardrail_ends_threads() - Test whether a violation ends anything.
 *
 * Context: Any.
 * Return: True for all policies but "log".
 */
bool guardrail_ends_threads(void);

#endif /* GUARDRAIL_DOMAIN_POLICY_H */
