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

/* Calls that are put off ask again and again, for few functions. */
#define FOUND 16

/**
 * struct found - What was found on a CPU.
 * @age: How many modules had been unloaded by then.
 * @domain: Domain of the import.
 * @function: As in struct wanted.
 * @call: As there.
 */
struct found {
	unsigned long age;
	u32 domain;
	unsigned long function, call;
};

static DEFINE_PER_CPU(struct found, found[FOUND]);
static unsigned long age = 1;

void guardrail_imports_gone(void)
{
	/* Behind the change of the list, which a search may have read before. */
	smp_store_release(&age, age + 1);
}

unsigned long guardrail_find_import(u32 domain, unsigned long p)
{
	struct wanted wanted = { .function = p };
	unsigned long flags, call = 0, now = smp_load_acquire(&age);
	struct found *place;

	local_irq_save(flags);
	place = this_cpu_ptr(&found[p / GUARDRAIL_SLOT / 2 % FOUND]);
	if (place->age == now && place->function == p && place->domain == domain)
		call = place->call;
	local_irq_restore(flags);
	if (call || !p || !guardrail_any_module(domain, look, &wanted))
		return call;
	local_irq_save(flags);
	*this_cpu_ptr(&found[p / GUARDRAIL_SLOT / 2 % FOUND]) = (struct found){ .age = now, .domain = domain, .function = p, .call = wanted.call };
	local_irq_restore(flags);
	return wanted.call;
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
