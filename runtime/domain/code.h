/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What guarded modules say of their code. */
#ifndef GUARDRAIL_DOMAIN_CODE_H
#define GUARDRAIL_DOMAIN_CODE_H

#include "base/kernel.h"

/**
 * enum guardrail_code - Whose code an address is in.
 * @GUARDRAIL_CODE_OTHER: In no guarded module.
 * @GUARDRAIL_CODE_OWN: A guarded module's own.
 * @GUARDRAIL_CODE_CALL: A thunk of a call to the kernel, which notes what the call returned before it returns.
 * @GUARDRAIL_CODE_ENTRY: A thunk of a call by the kernel.
 */
enum guardrail_code {
	GUARDRAIL_CODE_OTHER,
	GUARDRAIL_CODE_OWN,
	GUARDRAIL_CODE_CALL,
	GUARDRAIL_CODE_ENTRY,
};

/**
 * guardrail_code_at() - Find whose code an address is in.
 * @addr: The address.
 *
 * Context: Any.
 * Return: Whose it is, in modules that are loaded or kept.
 */
enum guardrail_code guardrail_code_at(unsigned long addr);

/**
 * guardrail_is_guarded() - Test for an address in a guarded module.
 * @addr: The address.
 *
 * Context: Any.
 * Return: True where it lies in one, kept or not.
 */
bool guardrail_is_guarded(unsigned long addr);

/**
 * guardrail_type_at() - Find the type that a function of a guarded module has to be called by.
 * @function: The function's thunk.
 *
 * Context: Any.
 * Return: The number of the type; 0 where an entry brings nothing, and for all that is no thunk of an entry.
 */
u32 guardrail_type_at(unsigned long function);

/**
 * guardrail_spills_at() - Find which words of a frame hold what its caller has in registers.
 * @addr: Address of a call in the function of the frame.
 *
 * Context: Any.
 * Return: A word of struct guardrail_spill; 0 outside of guarded modules; GUARDRAIL_SPILL_ALL for the frames of thunks.
 */
u32 guardrail_spills_at(unsigned long addr);

#endif /* GUARDRAIL_DOMAIN_CODE_H */
