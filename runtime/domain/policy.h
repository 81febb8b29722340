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
