/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which tasks run in guarded modules, and which domains are dead. */
#ifndef GUARDRAIL_DOMAIN_ENTRY_H
#define GUARDRAIL_DOMAIN_ENTRY_H

#include <linux/jump_label.h>

#include "base/kernel.h"
#include "domain/locks.h"

/* The dead domains, a bit each: their entries are refused. Bit 0 is set while a fault is asked for (domain/inject.h). */
extern unsigned long guardrail_dead_domains;
/* The domains in which entries were ended since their first module was loaded: these did not release what they had. */
extern unsigned long guardrail_ended_domains;

/**
 * is_dead() - Test for a dead domain, inlined.
 * @domain: A valid domain.
 *
 * Return: True where it is dead.
 */
static inline bool is_dead(u32 domain)
{
	return READ_ONCE(guardrail_dead_domains) >> domain & 1;
}

/**
 * struct guardrail_running - A task that runs in a module, as an interrupt finds it.
 * @record: Its innermost entry.
 * @looks: How often it was found running since it entered or last slept.
 */
struct guardrail_running {
	const struct guardrail_record *record;
	unsigned int looks;
};

/**
 * struct guardrail_interrupt - A running interrupt handler of a guarded module.
 * @irq: Number of the interrupt.
 * @domain: Domain of the module.
 * @function: Name of the handler, in the module's memory.
 */
struct guardrail_interrupt {
	unsigned long irq;
	u32 domain;
	const char *function;
};

/**
 * guardrail_entry_init() - Set up the notes of tasks.
 *
 * Return: 0, or -ENOMEM.
 */
int __init guardrail_entry_init(void);

/**
 * guardrail_entry_exit() - Free the notes of tasks that ended inside a module.
 */
void guardrail_entry_exit(void);

/**
 * guardrail_enter_noted() - The part of guardrail_enter() behind the assembly that stores the registers.
 * @entry: Function that is entered.
 * @record: Record of the entry.
 *
 * Context: Any; refused in NMIs.
 * Return: 0, or -EIO where the entry is refused.
 */
int guardrail_enter_noted(const struct guardrail_entry *entry, struct guardrail_record *record);

/**
 * guardrail_entry_detach() - Take the innermost entry of the current task out of its note.
 * @record: Record of the entry. It lies on a stack of its own, and the entry goes on in any task.
 *
 * The entry holds no locks, and changes nothing of the task.
 *
 * Context: Any but NMI.
 */
void guardrail_entry_detach(struct guardrail_record *record);

/**
 * guardrail_entry_attach() - Make a detached entry the innermost one of the current task.
 * @record: Record of the entry.
 *
 * Context: Any but NMI.
 * Return: False where there is no memory for a note; then the caller ends the entry.
 */
bool guardrail_entry_attach(struct guardrail_record *record);

/**
 * guardrail_called_itself() - Test for an entry that the module called itself, by a pointer.
 * @record: Record of the entry.
 *
 * Its arguments are the module's choice.
 *
 * Context: Any but NMI.
 * Return: True for one; false where the kernel called it, also on behalf of the module.
 */
bool guardrail_called_itself(const struct guardrail_record *record);

/**
 * guardrail_innermost() - Find the innermost entry of the current task.
 *
 * Context: Any but NMI.
 * Return: Its record, or NULL.
 */
struct guardrail_record *guardrail_innermost(void);

/**
 * guardrail_innermost_domain() - Find the domain of the innermost entry of the current task.
 *
 * Context: Any but NMI.
 * Return: The domain, or 0.
 */
static inline u32 guardrail_innermost_domain(void)
{
	const struct guardrail_record *record = guardrail_innermost();

	return record && record->entry ? record->entry->domain : 0;
}

struct guardrail_thread;
struct guardrail_transaction;

/* True while an entry is selected to be a transaction. */
DECLARE_STATIC_KEY_FALSE(guardrail_transacts);

/**
 * guardrail_transaction_slot() - Find where the current task's transaction is noted.
 * @innermost: Gets the record of its innermost entry.
 *
 * Context: Any.
 * Return: The place, which is NULL without a transaction; NULL where the task is in no module.
 */
struct guardrail_transaction **guardrail_transaction_slot(struct guardrail_record **innermost);

/**
 * guardrail_thread() - Find what the current task's entries have changed of it.
 *
 * Context: Interrupts off.
 * Return: The state, or NULL where the task is in no module.
 */
struct guardrail_thread *guardrail_thread(void);

/**
 * guardrail_locks() - Find the locks of the current task.
 * @innermost: Gets the record of its innermost entry.
 *
 * Context: Interrupts off.
 * Return: The locks, or NULL where the task is in no module.
 */
struct guardrail_locks *guardrail_locks(const struct guardrail_record **innermost);

/**
 * guardrail_running() - Look at the task that an interrupt interrupted.
 * @running: Gets what was found; its count of looks goes up.
 *
 * Context: Hard interrupt or NMI.
 * Return: False where the task is in no module.
 */
bool guardrail_running(struct guardrail_running *running);

/**
 * guardrail_note_loop() - Note where the current task loops.
 * @ip: Address of the code.
 *
 * Context: Interrupts off.
 */
void guardrail_note_loop(unsigned long ip);

/**
 * guardrail_looping() - Read where the current task loops.
 *
 * Return: The address that was noted, or 0.
 */
unsigned long guardrail_looping(void);

/**
 * guardrail_stack_limit() - Find where the writable part of the current stack ends.
 *
 * Context: Any.
 * Return: The first address that the running code may not write; 0 where it is in no module or may write all.
 */
unsigned long guardrail_stack_limit(void);

/**
 * guardrail_interrupt_on() - Find the interrupt handler that a CPU runs.
 * @cpu: The CPU.
 * @found: Gets the handler.
 *
 * Context: Any.
 * Return: False where it runs no handler of a guarded module.
 */
bool guardrail_interrupt_on(unsigned int cpu, struct guardrail_interrupt *found);

/**
 * guardrail_forget_task() - Forget the current task, which ends and has left all modules.
 *
 * Context: Process.
 */
void guardrail_forget_task(void);

/**
 * guardrail_inside() - Count the tasks that are in modules.
 *
 * Return: Their number.
 */
unsigned long guardrail_inside(void);

/**
 * guardrail_inside_domain() - Test whether a task is in a module of a domain.
 * @domain: A valid domain.
 *
 * Context: Any but NMI.
 * Return: True where some task is, or where an entry is detached.
 */
bool guardrail_inside_domain(u32 domain);

/**
 * guardrail_is_inside() - Test whether a certain task is in a module of a domain.
 * @task: A task that exists as long as this is called.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 * Return: True where it is.
 */
bool guardrail_is_inside(const struct task_struct *task, u32 domain);

/**
 * guardrail_on_stack_of() - Test for an address on a stack that a domain's entry uses.
 * @domain: The domain.
 * @p: The address.
 *
 * Context: Any but NMI.
 * Return: True where @p lies below the record of an entry into the domain, on the same stack.
 */
bool guardrail_on_stack_of(u32 domain, unsigned long p);

/**
 * guardrail_revive() - Let a domain begin anew.
 * @domain: Domain that gets its first module.
 */
void guardrail_revive(u32 domain);

/* For guardrail_saved.unwound: the entry was ended, and what it did is undone; or it stays, and its device is restored. */
#define GUARDRAIL_UNDONE 2
#define GUARDRAIL_STAYS 3

/**
 * was_undone() - Test for an entry that was ended from within, and has done nothing.
 * @call: Call registers of an entry, after its function.
 *
 * Return: True where it was.
 */
static inline bool was_undone(const struct guardrail_call *call)
{
	return container_of(call, struct guardrail_record, call)->saved.unwound == GUARDRAIL_UNDONE;
}

/**
 * was_kept() - Test for an entry that was ended from within, and whose device is restored with what it did.
 * @call: Call registers of an entry, after its function.
 *
 * Return: True where it was.
 */
static inline bool was_kept(const struct guardrail_call *call)
{
	return container_of(call, struct guardrail_record, call)->saved.unwound == GUARDRAIL_STAYS;
}

/**
 * was_ended() - Test for an entry that was ended from within.
 * @call: Call registers of an entry, after its function.
 *
 * Return: True where it was.
 */
static inline bool was_ended(const struct guardrail_call *call)
{
	return container_of(call, struct guardrail_record, call)->saved.unwound;
}

#endif /* GUARDRAIL_DOMAIN_ENTRY_H */
