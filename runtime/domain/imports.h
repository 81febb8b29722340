/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the modules of a domain import, and their variables. */
#ifndef GUARDRAIL_DOMAIN_IMPORTS_H
#define GUARDRAIL_DOMAIN_IMPORTS_H

#include "base/kernel.h"

/**
 * guardrail_find_import() - Find where calls of a function lead that a module of a domain imports.
 * @domain: The domain.
 * @p: Address of the function.
 *
 * Context: Any.
 * Return: The address to call, or 0 where none of the domain's modules imports it.
 */
unsigned long guardrail_find_import(u32 domain, unsigned long p);

/**
 * guardrail_imports_gone() - Forget what was found, since a module is unloaded.
 *
 * Context: Any; modules_lock is held.
 */
void guardrail_imports_gone(void);

/**
 * guardrail_imported_variable() - Search the variables that the modules of a domain import.
 * @domain: The domain.
 * @fits: Says of each whether it is the one.
 * @data: Passed to @fits.
 *
 * Context: Any; @fits must not sleep.
 * Return: True where one is.
 */
bool guardrail_imported_variable(u32 domain, bool (*fits)(unsigned long variable, void *data), void *data);

/**
 * guardrail_is_variable() - Test for a variable of a domain's modules.
 * @domain: The domain.
 * @p: The address.
 *
 * Context: Any but NMI.
 * Return: True where it lies in the writable data of one of them.
 */
bool guardrail_is_variable(u32 domain, unsigned long p);

#endif /* GUARDRAIL_DOMAIN_IMPORTS_H */
