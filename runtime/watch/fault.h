/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Faults of the processor in entries. */
#ifndef GUARDRAIL_WATCH_FAULT_H
#define GUARDRAIL_WATCH_FAULT_H

#include "base/kernel.h"

/**
 * guardrail_divert() - Make the interrupted code end its innermost entry when it continues.
 * @regs: Registers of the interrupted code: the module's, or what it has called.
 * @record: Record of the entry.
 * @what: Words for the fault.
 * @ip: Address in the module.
 *
 * Context: Any.
 * Return: False where the entry cannot be ended; nothing has changed then.
 */
bool guardrail_divert(struct pt_regs *regs, const struct guardrail_record *record, const char *what, unsigned long ip);

/**
 * guardrail_contain() - Make code that a module runs, or has called, end the innermost entry when it continues.
 * @regs: Registers of the interrupted code.
 * @what: Words for the fault.
 *
 * Context: Any.
 * Return: False where a module did not call that code, or the entry cannot be ended.
 */
bool guardrail_contain(struct pt_regs *regs, const char *what);

/**
 * guardrail_fault_init() - Start to handle faults.
 *
 * Return: 0 or an error.
 */
int __init guardrail_fault_init(void);

/**
 * guardrail_fault_exit() - Stop to handle faults.
 */
void guardrail_fault_exit(void);

#endif /* GUARDRAIL_WATCH_FAULT_H */
