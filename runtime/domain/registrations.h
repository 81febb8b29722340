/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What domains have registered with the kernel, and how each registration is undone. Annotations state both
 * (docs/use/annotations.md), so a class of registrations needs no code here.
 */
#ifndef GUARDRAIL_DOMAIN_REGISTRATIONS_H
#define GUARDRAIL_DOMAIN_REGISTRATIONS_H

#include "base/kernel.h"

/* The most arguments of a function that undoes a registration. */
#define GUARDRAIL_UNDO_ARGS 4
/* Room for the name of a function: the module that has the name may be unloaded first. */
#define GUARDRAIL_FUNCTION_NAME 64

/**
 * struct guardrail_registration - A registration of a domain.
 * @list: Place in the list of registrations.
 * @domain: The domain.
 * @n: How many arguments the function that undoes it gets.
 * @args: These arguments.
 * @function: Name of the function that registered it.
 * @inverse: Name of the function that undoes it.
 */
struct guardrail_registration {
	struct list_head list;
	u32 domain;
	unsigned int n;
	unsigned long args[GUARDRAIL_UNDO_ARGS];
	char function[GUARDRAIL_FUNCTION_NAME];
	char inverse[GUARDRAIL_FUNCTION_NAME];
};

/**
 * guardrail_registration_note() - Note a registration.
 * @made: The registration; it is copied.
 *
 * Context: Any but NMI.
 */
void guardrail_registration_note(const struct guardrail_registration *made);

/**
 * guardrail_registration_is_made() - Test for a registration that is noted.
 * @made: Domain, function that undoes it, and all arguments.
 *
 * Context: Any but NMI.
 * Return: True where the domain has it, or where that is not known since one could not be noted.
 */
bool guardrail_registration_is_made(const struct guardrail_registration *made);

/**
 * guardrail_registration_forget() - Forget the latest registration that a call has undone.
 * @undone: Domain, function that undoes it, and arguments.
 * @counts: Which arguments must be the same, a bit each.
 *
 * Registrations below it are forgotten as well: those that the same function undoes, and whose second argument is the
 * first one of this.
 *
 * Context: Any but NMI.
 */
void guardrail_registration_forget(const struct guardrail_registration *undone, unsigned long counts);

/**
 * guardrail_registration_take() - Take the latest registration of a domain.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 * Return: The registration, which the caller frees; NULL without one.
 */
struct guardrail_registration *guardrail_registration_take(u32 domain);

/**
 * guardrail_registrations_leave() - Report and forget what a domain has still registered when its last module is unloaded.
 * @domain: The domain.
 * @name: The module.
 *
 * It stays registered: only a teardown undoes it, during which the module is there.
 *
 * Context: Any but NMI.
 */
void guardrail_registrations_leave(u32 domain, const char *name);

#endif /* GUARDRAIL_DOMAIN_REGISTRATIONS_H */
