/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Violations and faults in the kernel's log, and the effect of the policy. guardrail_abi.h declares
 * guardrail_report().
 */
#ifndef GUARDRAIL_REPORT_REPORT_H
#define GUARDRAIL_REPORT_REPORT_H

#include "base/kernel.h"

struct guardrail_lock;
struct guardrail_noted;

/**
 * guardrail_held_at() - Name a domain's right to a byte.
 * @addr: Address of the byte.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 * Return: A word for the right.
 */
const char *guardrail_held_at(unsigned long addr, u32 domain);

/**
 * guardrail_report_write() - Report a store without the right to write.
 * @addr: First byte of the store.
 * @size: Its size in bytes.
 * @first: First byte that the domain may not write.
 * @domain: Domain that stores.
 * @ip: Address of the store.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_report_write(unsigned long addr, unsigned long size, unsigned long first, u32 domain, unsigned long ip);

/**
 * guardrail_report_beyond() - Report a store by an index that leaves the array.
 * @addr: First byte of the store, in another variable of the module.
 * @size: Its size in bytes.
 * @domain: Domain that stores.
 * @ip: Address of the store.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_report_beyond(unsigned long addr, unsigned long size, u32 domain, unsigned long ip);

/**
 * guardrail_report_icall() - Report an indirect call to an address that is not a call target.
 * @target: Address that is called.
 * @domain: Domain that calls.
 * @ip: Address of the call.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_report_icall(unsigned long target, u32 domain, unsigned long ip);

/**
 * guardrail_report_lock() - Report an entry that returns with a lock.
 * @lock: The lock.
 * @kind: Words for its kind.
 * @entry: The function that returns.
 *
 * Context: That of the entry.
 * Return: True where the lock is to be released.
 */
bool guardrail_report_lock(const struct guardrail_lock *lock, const char *kind, const struct guardrail_entry *entry);

/**
 * guardrail_report_thread() - Report an entry that returns with a changed state of its thread.
 * @field: Address of what it has changed.
 * @entry: The function that returns.
 * @ip: Where it was called.
 *
 * Context: That of the entry.
 * Return: True where the state is to be restored.
 */
bool guardrail_report_thread(unsigned long field, const struct guardrail_entry *entry, unsigned long ip);

/**
 * guardrail_report_counts() - Report an entry that returns with other interrupts, preemption or RCU readers.
 * @which: What differs, in words that end with a comma and a space.
 * @record: Record of the entry.
 *
 * Context: That of the entry.
 * Return: True where they are to be restored.
 */
bool guardrail_report_counts(const char *which, const struct guardrail_record *record);

/**
 * guardrail_report_frame() - Report a function that returns while the kernel uses an object in its stack frame.
 * @noted: The object.
 * @name: Words for it.
 * @domain: Domain of the function.
 * @ip: Address of the code that returns.
 *
 * Context: That of the entry. May not return.
 */
void guardrail_report_frame(const struct guardrail_noted *noted, const char *name, u32 domain, unsigned long ip);

/**
 * guardrail_report_storm() - Report an interrupt that was raised again and again, and was disabled.
 * @domain: Domain of its handler.
 * @function: Name of the handler.
 * @irq: Number of the interrupt.
 *
 * Context: Process.
 */
void guardrail_report_storm(u32 domain, const char *function, unsigned long irq);

/**
 * guardrail_report_loop() - Report an entry that runs without end.
 * @domain: Domain of the entry.
 * @function: Its name.
 * @seconds: How long it ran.
 * @ip: Address of the code that runs.
 *
 * Context: Any.
 */
void guardrail_report_loop(u32 domain, const char *function, unsigned int seconds, unsigned long ip);

/**
 * guardrail_faulted() - Report a fault that the processor or a watchdog found in an entry, and end the entry.
 * @domain: Domain of the entry.
 * @what: Words for the fault.
 * @ip: Address of the code.
 *
 * Context: That of the entry, which can be ended. Does not return.
 */
void guardrail_faulted(u32 domain, const char *what, unsigned long ip);

/**
 * guardrail_violations_show() - Print all violations and their counts.
 * @seq: File to print to.
 * @unused: Unused.
 *
 * Context: Process.
 * Return: 0.
 */
int guardrail_violations_show(struct seq_file *seq, void *unused);

/**
 * guardrail_report_exit() - Free the list of violations.
 */
void guardrail_report_exit(void);

#endif /* GUARDRAIL_REPORT_REPORT_H */
