// SPDX-License-Identifier: GPL-2.0-or-later
/* What the modules of a domain import, and their variables; domain/imports.h describes it. */
#include "domain/imports.h"
#include "domain/module.h"

/**
 * struct wanted - What is looked for among imports.
 * @function: Address of a function, or 0 for variables.
 * @call: Gets where calls of it lead.
 * @fits: Says whether a variable is the one.
 * @data: Passed to it.
 */
struct wanted {
	unsigned long function, call;
	bool (*fits)(unsigned long variable, void *data);
	void *data;
};

static bool look(const struct guardrail_module *guarded, void *data)
{
	struct wanted *wanted = data;
	u64 i;

	for (i = 0; i < guarded->n_imports; i++) {
		const struct guardrail_import *import = &guarded->imports[i];

		if (wanted->function ? import->function != wanted->function || !import->call :
				       import->call || !wanted->fits(import->function, wanted->data))
			continue;
		wanted->call = import->call;
		return true;
	}
	return false;
}

unsigned long guardrail_find_import(u32 domain, unsigned long p)
{
	struct wanted wanted = { .function = p };

	return p && guardrail_any_module(domain, look, &wanted) ? wanted.call : 0;
}

bool guardrail_imported_variable(u32 domain, bool (*fits)(unsigned long variable, void *data), void *data)
{
	struct wanted wanted = { .fits = fits, .data = data };

	return guardrail_any_module(domain, look, &wanted);
}

static bool holds(const struct guardrail_module *guarded, void *data)
{
	return guardrail_in_ranges(*(unsigned long *)data, guarded->writable, guarded->n_writable);
}

bool guardrail_is_variable(u32 domain, unsigned long p)
{
	return guardrail_any_module(domain, holds, &p);
}
