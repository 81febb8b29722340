/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The guarded modules that are loaded, and those that stay in memory for good. */
#ifndef GUARDRAIL_DOMAIN_MODULE_H
#define GUARDRAIL_DOMAIN_MODULE_H

#include <linux/jump_label.h>

#include "base/kernel.h"
#include "domain/policy.h"

/* The most modules of a domain. */
#define MAX_MODULES 16

/**
 * struct guardrail_modules - The modules of a domain, the last loaded first: the order to unload them in.
 * @n: How many there are.
 * @module: The modules; the caller ensures that they stay.
 * @name: Their names.
 */
struct guardrail_modules {
	unsigned int n;
	struct module *module[MAX_MODULES];
	char name[MAX_MODULES][MODULE_NAME_LEN];
};

/* Enabled once modules of some domain are kept. */
DECLARE_STATIC_KEY_FALSE(guardrail_keeps);

/**
 * guardrail_is_kept() - Test for an address in a kept module.
 * @domain: Domain of the module.
 * @p: The address.
 *
 * Context: Any.
 * Return: True where it lies in one.
 */
bool guardrail_is_kept(u32 domain, const void *p);

/**
 * guardrail_guarded_at() - Find the guarded module that an address is in.
 * @addr: The address.
 *
 * Context: Any, in a reader of RCU.
 * Return: What describes it, until the reader ends; NULL where it is in none that is loaded or kept.
 */
const struct guardrail_module *guardrail_guarded_at(unsigned long addr);

/**
 * guardrail_in_ranges() - Test for an address in one of several ranges.
 * @addr: The address.
 * @ranges: The ranges.
 * @n: How many there are.
 *
 * Return: True where it lies in one.
 */
static inline bool guardrail_in_ranges(unsigned long addr, const struct guardrail_range *ranges, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		if (addr - ranges[i].start < ranges[i].len)
			return true;
	return false;
}

/**
 * guardrail_any_module() - Ask of each module of a domain.
 * @domain: The domain.
 * @fits: Says whether it is the one; must not sleep.
 * @data: Passed to it.
 *
 * Context: Any.
 * Return: True where one is.
 */
bool guardrail_any_module(u32 domain, bool (*fits)(const struct guardrail_module *guarded, void *data), void *data);

/**
 * guardrail_is_in_domain() - Test for an address in a module of a domain.
 * @domain: The domain.
 * @p: The address.
 *
 * Context: Any.
 * Return: True where it lies in the code or data of one.
 */
bool guardrail_is_in_domain(u32 domain, unsigned long p);

/**
 * guardrail_change_policy() - Set the policy, unless it refuses a loaded module.
 * @wanted: The policy.
 *
 * Context: Process.
 * Return: 0, or -EPERM after the log names a module.
 */
int guardrail_change_policy(enum guardrail_policy wanted);

/**
 * guardrail_is_of() - Test for an address in one of some modules.
 * @p: The address.
 * @modules: The modules.
 *
 * Return: True where it lies in one.
 */
bool guardrail_is_of(const void *p, const struct guardrail_modules *modules);

/**
 * guardrail_module_is_there() - Test for a loaded module by name.
 * @domain: Its domain.
 * @name: Its name.
 *
 * Context: Any but NMI.
 * Return: True where the domain has it and its init function has returned.
 */
bool guardrail_module_is_there(u32 domain, const char *name);

/**
 * guardrail_modules_of() - List the modules of a domain.
 * @domain: The domain.
 * @modules: Gets the list.
 *
 * Context: Any but NMI.
 */
void guardrail_modules_of(u32 domain, struct guardrail_modules *modules);

/**
 * guardrail_domain_name() - Name a domain by its modules.
 * @domain: The domain.
 * @text: Gets the modules' names; empty where it has none.
 * @size: Size of @text in bytes.
 *
 * Context: Any but NMI.
 */
void guardrail_domain_name(u32 domain, char *text, size_t size);

/**
 * guardrail_keep_modules() - Keep the modules of a dead domain in memory for good.
 * @domain: The domain; it holds nothing any more.
 *
 * No thread enters a kept module. It loses its name to the module that is loaded in its place. This
 * is for domains to which pointers may remain that cannot be found.
 *
 * Context: May sleep.
 * Return: 0 or an error.
 */
int guardrail_keep_modules(u32 domain);

/**
 * guardrail_can_keep() - Test whether more modules may be kept.
 * @n: How many more.
 *
 * Return: False where there would be too many.
 */
bool guardrail_can_keep(unsigned int n);

#endif /* GUARDRAIL_DOMAIN_MODULE_H */
