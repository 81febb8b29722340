/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What upper rooms do when this room or the report finds a reason for it. */
#ifndef GUARDRAIL_DOMAIN_OPS_H
#define GUARDRAIL_DOMAIN_OPS_H

#include "base/kernel.h"

struct guardrail_lock;
struct guardrail_noted;

/**
 * struct guardrail_domain_ops - Calls from below into upper rooms.
 * @recover: Kills a domain for a reason in words and starts its recovery, unless it is dead already. In any context but
 *	NMI.
 * @clear_dead: A module of a dead domain is unloaded: releases what the domain holds. Sets *gone
 *	when nothing uses the module any more. May sleep.
 * @entry_over: An entry was ended, or refused while its domain is dead. In any context that entries run in.
 * @lock_kept: An entry returns with a lock of the named kind. True where the lock is to be released. In any context that
 *	entries run in.
 * @thread_kept: The task's outermost entry returns, and inlined code has changed what the kernel keeps of its thread there.
 *	True where it is to be restored. In any context that entries run in.
 * @counts_kept: An entry returns with other interrupts, preemption or RCU readers than it began with; the words say which. True
 *	where they are to be restored. In any context that entries run in.
 * @may_store: A store that no right covers. True where its target is the domain's by what the kernel knows of it. In any
 *	context but NMI.
 * @object_kept: A function returns while the kernel uses the named object in its stack frame. May not return. In any
 *	context that entries run in.
 * @transact_begins: An entry begins, while some are selected to be transactions. In any context that entries run in.
 * @transact_ends: An entry returns to a task that has a transaction. In any context that entries run in.
 * @transact_undoes: An entry is ended while its locks are held: undoes the stores of its transaction. True where it has one
 *	that can be undone. In any context that entries run in.
 * @transact_undone: The same entry has given its locks back: undoes its calls, and ends its transaction. In any context that
 *	entries run in.
 * @transact_module: A module is loaded (true), or unloaded. May sleep.
 * @faulted: An entry cannot go on for the reason in words. Does not return where the policy ends calls. In any context that
 *	entries run in.
 */
struct guardrail_domain_ops {
	void (*recover)(u32 domain, const char *why);
	void (*clear_dead)(u32 domain, bool *gone);
	void (*entry_over)(struct guardrail_record *record, bool ended);
	bool (*lock_kept)(const struct guardrail_lock *lock, const char *kind, const struct guardrail_entry *entry);
	bool (*thread_kept)(unsigned long field, const struct guardrail_entry *entry, unsigned long ip);
	bool (*counts_kept)(const char *which, const struct guardrail_record *record);
	bool (*may_store)(u32 domain, unsigned long addr, unsigned long n);
	void (*object_kept)(const struct guardrail_noted *what, const char *name, u32 domain, unsigned long ip);
	void (*faulted)(u32 domain, const char *what, unsigned long ip);
	void (*transact_begins)(struct guardrail_record *record);
	void (*transact_ends)(struct guardrail_record *record);
	bool (*transact_undoes)(struct guardrail_record *record);
	void (*transact_undone)(struct guardrail_record *record);
	int (*transact_module)(const struct guardrail_module *guarded, bool comes);
};

/* Set once, before a guarded module can be loaded. */
extern const struct guardrail_domain_ops *guardrail_domain_ops;

/**
 * guardrail_domain_register() - Set the calls into upper rooms.
 * @ops: The calls; all members are set.
 */
void __init guardrail_domain_register(const struct guardrail_domain_ops *ops);

#endif /* GUARDRAIL_DOMAIN_OPS_H */
