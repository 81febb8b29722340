/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Functions and variables of the kernel that it does not export. */
#ifndef GUARDRAIL_BASE_SYMBOLS_H
#define GUARDRAIL_BASE_SYMBOLS_H

#include "base/kernel.h"

struct vm_struct;

/* The kernel's own page tables. */
extern struct mm_struct *guardrail_init_mm;

/**
 * guardrail_symbols_find() - Find all symbols that this module cannot do without.
 *
 * Call it before anything else in this header.
 *
 * Context: May sleep.
 * Return: 0, or an error after the log names the missing symbol.
 */
int __init guardrail_symbols_find(void);

/**
 * guardrail_find_symbol() - Find a symbol by name.
 * @name: Function or variable of the kernel or of a loaded module.
 *
 * Context: Process.
 * Return: Its address, or 0 where the kernel knows none.
 */
unsigned long guardrail_find_symbol(const char *name);

/**
 * guardrail_get_vm_area() - Reserve addresses in the area for virtual mappings.
 * @size: Bytes to reserve.
 * @flags: VM_… flags.
 *
 * Context: May sleep.
 * Return: The area, for free_vm_area(), or NULL.
 */
struct vm_struct *guardrail_get_vm_area(unsigned long size, unsigned long flags);

/**
 * guardrail_flush_tlb() - Flush translations of kernel addresses on all CPUs.
 * @start: First address.
 * @end: Address behind the last.
 *
 * Context: Process, with interrupts on.
 */
void guardrail_flush_tlb(unsigned long start, unsigned long end);

/**
 * guardrail_stack_of() - Find the stack that has an address.
 * @addr: Address to look for.
 * @info: Gets the stack's bounds.
 *
 * Context: Any.
 * Return: True where it is a stack of the current task or CPU, or the own stack of an active driver that this code runs on.
 */
bool guardrail_stack_of(unsigned long addr, struct stack_info *info);

/**
 * guardrail_own_stack_of() - Find the own stack of an active driver that has an address.
 * @addr: Address to look for.
 * @on: Address of a frame of the current task.
 * @info: Gets the stack's bounds.
 *
 * An own stack has THREAD_SIZE bytes, is aligned to that, and lies in memory of vmalloc(). The kernel does not know it.
 *
 * Context: Any.
 * Return: True where the frame lies on an own stack, and the address too.
 */
bool guardrail_own_stack_of(unsigned long addr, unsigned long on, struct stack_info *info);

/**
 * guardrail_module_at() - Find the module that has an address.
 * @addr: Address in the module's memory.
 *
 * Context: Any but NMI. The caller knows that the module stays.
 * Return: The module, or NULL.
 */
struct module *guardrail_module_at(unsigned long addr);

/**
 * guardrail_is_code() - Test for an address in code.
 * @addr: Address to test.
 *
 * Context: Any.
 * Return: True for code of the kernel or a module, and for code made at run time.
 */
bool guardrail_is_code(unsigned long addr);

/**
 * guardrail_is_function() - Test for the start of a function.
 * @addr: Address to test.
 *
 * Context: Any.
 * Return: True where a symbol of the kernel's or a module's code has this address.
 */
bool guardrail_is_function(unsigned long addr);

/**
 * guardrail_symbol_range() - Find the function or variable that has an address.
 * @addr: The address.
 * @start: Gets its begin.
 * @end: Gets the begin of what follows; the byte behind @addr where that is not known.
 *
 * Context: Any.
 * Return: False where no symbol of the kernel or a module lies there.
 */
bool guardrail_symbol_range(unsigned long addr, unsigned long *start, unsigned long *end);

/**
 * guardrail_is_image() - Test for an address in the area of the kernel's image and of modules.
 * @addr: The address.
 *
 * Return: True where it lies there, whether there is memory or not.
 */
static inline bool guardrail_is_image(unsigned long addr)
{
	return addr >= __START_KERNEL_map && addr < MODULES_END;
}

#endif /* GUARDRAIL_BASE_SYMBOLS_H */
