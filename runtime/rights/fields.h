/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Rights to the fields of structures. */
#ifndef GUARDRAIL_RIGHTS_FIELDS_H
#define GUARDRAIL_RIGHTS_FIELDS_H

#include "rights/tag.h"

/**
 * guardrail_fields_change() - Grant or revoke the fields of a structure.
 * @domain: Domain whose rights change.
 * @p: Begin of the structure.
 * @fields: List of fields; it stays the same as long as its module is loaded.
 * @n: Length of the list.
 * @right: GUARDRAIL_WRITE or GUARDRAIL_READ.
 *
 * Objects stay objects.
 *
 * Context: Any but NMI.
 * Return: 0, -EINVAL or -ENOMEM.
 */
int guardrail_fields_change(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n, u8 right);

/**
 * guardrail_fields_tags() - Work out the tags of a structure of which only some fields are writable.
 * @domain: Domain that may write them.
 * @p: Begin of the structure, at a slot's begin.
 * @fields: List of fields.
 * @n: Length of the list.
 * @tags: Gets one tag for each slot.
 * @slots: Number of slots.
 *
 * Context: Any but NMI.
 * Return: False where tags cannot express it.
 */
bool guardrail_fields_tags(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n, u8 *tags,
			   unsigned int slots);

/**
 * guardrail_fields_forget() - Forget the lists of a module that is unloaded.
 * @module: The module.
 *
 * Context: Any but NMI.
 */
void guardrail_fields_forget(const struct module *module);

#endif /* GUARDRAIL_RIGHTS_FIELDS_H */
