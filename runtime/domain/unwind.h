/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Entries that are ended from within. guardrail_abi.h declares guardrail_unwind(). */
#ifndef GUARDRAIL_DOMAIN_UNWIND_H
#define GUARDRAIL_DOMAIN_UNWIND_H

#include "base/kernel.h"

/**
 * guardrail_crossing() - End the entry of a thread that calls out of a dead domain, or in which a fault was asked for.
 * @domain: Domain of the call.
 * @frame: Call registers of the thunk that makes it. Nothing happens where they are the entry's own.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_crossing(u32 domain, const struct guardrail_call *call);

/**
 * guardrail_end() - End an entry.
 * @record: Its record, which lies on the current stack. The entry can be ended, and runs.
 *
 * Context: That of the entry. Does not return.
 */
void guardrail_end(struct guardrail_record *record);

/**
 * guardrail_unwind_caller() - End the entry that called one that was ended, if the domain called itself.
 * @ended: Record of the entry that was ended, and has been left.
 *
 * Its caller would continue as if the call had succeeded.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_unwind_caller(const struct guardrail_record *ended);

/**
 * guardrail_put_back() - Restore what the kernel counts for the current task or CPU.
 * @saved: State at the begin of the entry.
 *
 * Context: That of the entry.
 */
void guardrail_put_back(const struct guardrail_saved *saved);

/**
 * guardrail_can_end() - Test whether an innermost entry can be ended.
 * @record: Record of the entry.
 * @sp: Stack pointer of the code that is to end it.
 *
 * Context: Any.
 * Return: True where it can.
 */
bool guardrail_can_end(const struct guardrail_record *record, unsigned long sp);

#endif /* GUARDRAIL_DOMAIN_UNWIND_H */
