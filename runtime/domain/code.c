// SPDX-License-Identifier: GPL-2.0-or-later
/* What guarded modules say of their code; domain/code.h describes it. */
#include <linux/rcupdate.h>

#include "domain/code.h"
#include "domain/module.h"

static enum guardrail_code code_of(unsigned long addr, const struct guardrail_module *guarded)
{
	if (guardrail_in_ranges(addr, guarded->calls, guarded->n_calls))
		return GUARDRAIL_CODE_CALL;
	return guardrail_in_ranges(addr, guarded->entries, guarded->n_entries) ? GUARDRAIL_CODE_ENTRY : GUARDRAIL_CODE_OWN;
}

enum guardrail_code guardrail_code_at(unsigned long addr)
{
	const struct guardrail_module *guarded;
	enum guardrail_code code;

	rcu_read_lock();
	guarded = guardrail_guarded_at(addr);
	code = guarded ? code_of(addr, guarded) : GUARDRAIL_CODE_OTHER;
	rcu_read_unlock();
	return code;
}

bool guardrail_is_guarded(unsigned long addr)
{
	return guardrail_code_at(addr) != GUARDRAIL_CODE_OTHER;
}

u32 guardrail_type_at(unsigned long function)
{
	const struct guardrail_module *guarded;
	u32 type = 0;
	u64 i;

	rcu_read_lock();
	guarded = guardrail_guarded_at(function);
	for (i = 0; guarded && i < guarded->n_targets; i++) {
		if (guarded->targets[i].function == function) {
			type = guarded->targets[i].type;
			break;
		}
	}
	rcu_read_unlock();
	return type;
}

/* The last row that begins at the offset or below it. */
static u32 spills_of(const struct guardrail_text *text, unsigned long offset)
{
	u64 from = 0, to = text->n_spills;

	if (!text->spills)
		return GUARDRAIL_SPILL_ALL;
	while (from < to) {
		u64 middle = from + (to - from) / 2;

		if (text->spills[middle].at <= offset)
			from = middle + 1;
		else
			to = middle;
	}
	return from ? text->spills[from - 1].words : 0;
}

u32 guardrail_spills_at(unsigned long addr)
{
	const struct guardrail_module *guarded;
	u32 words = 0;
	u64 i;

	rcu_read_lock();
	guarded = guardrail_guarded_at(addr);
	for (i = 0; guarded && i < guarded->n_texts; i++) {
		const struct guardrail_text *text = &guarded->texts[i];
		unsigned long offset = addr - (text->end - text->len);

		if (offset < text->len)
			words = spills_of(text, offset);
	}
	rcu_read_unlock();
	return words;
}
