/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The part of the current stack that guarded code may write, and the words there by which functions return. */
#ifndef GUARDRAIL_DOMAIN_STACK_H
#define GUARDRAIL_DOMAIN_STACK_H

#include "base/kernel.h"

struct pt_regs;
struct unwind_state;

/**
 * guardrail_on_stack() - Test for a range in the writable part of the current stack.
 * @addr: First byte.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: True where guarded code may use all of it.
 */
bool guardrail_on_stack(unsigned long addr, unsigned long n);

/**
 * guardrail_stack_forget() - Forget what is known of frames, since a module enters.
 *
 * Context: Any.
 */
void guardrail_stack_forget(void);

/**
 * guardrail_returns_by() - Test for words of the current stack by which functions return.
 * @addr: First byte of a range on the current stack.
 * @n: Number of bytes.
 * @store_sp: The stack pointer of the caller, if it allows stores for which this is false, and guardrail_stored_before() is
 *   false; else 0.
 *
 * These are return addresses, registers that functions of guarded modules have saved, the frames of thunks, and the registers
 * of an interrupted function.
 *
 * Context: Any but NMI.
 * Return: True where the range has such a word, or where that is not known.
 */
bool guardrail_returns_by(unsigned long addr, unsigned long n, unsigned long store_sp);

/**
 * guardrail_walks() - How often guardrail_returns_by() walked the stack.
 *
 * Context: Any.
 * Return: The sum over all CPUs.
 */
unsigned long guardrail_walks(void);

/**
 * guardrail_trace() - Save the return addresses of the current stack.
 * @entries: Gets them, the innermost first.
 * @most: How many there is room for.
 *
 * Of an own stack, the kernel's stack_trace_save() finds nothing.
 *
 * Context: Any but NMI.
 * Return: How many there are.
 */
unsigned int guardrail_trace(unsigned long *entries, unsigned int most);

/**
 * guardrail_walk_begins() - Begin a walk of the stack at the caller of what was interrupted.
 * @state: The walk.
 * @regs: Registers of what was interrupted, on a stack of the current task.
 *
 * Context: Any.
 */
void guardrail_walk_begins(struct unwind_state *state, struct pt_regs *regs);

/**
 * guardrail_stored_before() - Test for a store to the stack that was allowed before.
 * @addr: First byte.
 * @n: Number of bytes.
 * @store_sp: Stack pointer of the caller.
 *
 * All functions below the address return to where they did then. The records of entries lie in the frames of their thunks, so
 * the same entries are there as well.
 *
 * Context: Any but NMI.
 * Return: True where guardrail_returns_by() was false.
 */
bool guardrail_stored_before(unsigned long addr, unsigned long n, unsigned long store_sp);

/**
 * guardrail_stack_ends() - Test for the end of the current stack.
 *
 * The kernel's functions that a driver calls want some 4 KiB.
 *
 * Context: Any but NMI.
 * Return: True where less than that is left.
 */
bool guardrail_stack_ends(void);

/**
 * guardrail_stack_init() - Allocate what walks are remembered in.
 *
 * Context: Process context.
 * Return: 0 or -ENOMEM.
 */
int guardrail_stack_init(void);

/**
 * guardrail_stack_exit() - Free it.
 *
 * Context: Process context; no guarded module is loaded.
 */
void guardrail_stack_exit(void);

#endif /* GUARDRAIL_DOMAIN_STACK_H */
