/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Locks that entries take. Each task records the locks that its entries have taken and not
 * released, and those that they have released without having taken them. An entry that is ended
 * leaves its locks as they were when it began.
 */
#ifndef GUARDRAIL_DOMAIN_LOCKS_H
#define GUARDRAIL_DOMAIN_LOCKS_H

#include "base/kernel.h"

/* The most locks of a task that are noted. */
#define GUARDRAIL_MOST_LOCKS 16

/**
 * enum guardrail_lock_kind - Kinds of locks.
 * @GUARDRAIL_SPIN: Spin lock.
 * @GUARDRAIL_READER: Read side of a reader-writer spin lock.
 * @GUARDRAIL_WRITER: Write side of it; the last kind that spins.
 * @GUARDRAIL_MUTEX: Mutex.
 * @GUARDRAIL_SHARED: Read side of a semaphore.
 * @GUARDRAIL_EXCLUSIVE: Write side of it.
 * @GUARDRAIL_RTNL: The lock of rtnetlink.
 */
enum guardrail_lock_kind {
	GUARDRAIL_SPIN,
	GUARDRAIL_READER,
	GUARDRAIL_WRITER,
	GUARDRAIL_MUTEX,
	GUARDRAIL_SHARED,
	GUARDRAIL_EXCLUSIVE,
	GUARDRAIL_RTNL,
};

/**
 * struct guardrail_lock - A lock that an entry took or released.
 * @record: Record of the entry; only compared.
 * @p: Address of the lock.
 * @ip: Address of the code that took or released it.
 * @kind: An enum guardrail_lock_kind.
 * @taken: The entry took it; otherwise it released it without having taken it.
 */
struct guardrail_lock {
	const struct guardrail_record *record;
	unsigned long p;
	unsigned long ip;
	u32 kind;
	bool taken;
};

/**
 * struct guardrail_locks - Locks of a task, the latest last.
 * @n: How many there are.
 * @more: How many more it took than there was room for.
 * @lock: The locks.
 */
struct guardrail_locks {
	unsigned int n;
	unsigned int more;
	struct guardrail_lock lock[GUARDRAIL_MOST_LOCKS];
};

/**
 * guardrail_lock_changes() - Note that the innermost entry of the current task takes or releases a lock.
 * @lock: The lock; its record is filled in. Outside of entries nothing is noted.
 *
 * Context: Any but NMI.
 */
void guardrail_lock_changes(struct guardrail_lock *lock);

/**
 * guardrail_lock_depth() - Count how often the current task holds a lock.
 * @p: Address of the lock.
 * @kind: Kind of the lock; holds of a semaphore's read side do not count for its read side.
 *
 * Context: Any but NMI.
 * Return: The number of times that its entries took it, less those that they released it.
 */
int guardrail_lock_depth(unsigned long p, u32 kind);

/**
 * guardrail_locks_of() - Move the locks of an entry of the current task.
 * @record: Record of the entry.
 * @own: Gets the locks, the latest first.
 *
 * Context: Any but NMI.
 */
void guardrail_locks_of(const struct guardrail_record *record, struct guardrail_locks *own);

/**
 * guardrail_locks_back() - Undo what an entry did with locks and counters.
 * @own: Locks of the entry.
 * @record: Record of the entry.
 *
 * Interrupts, preemption and the other counters become what they were when the entry began.
 *
 * Context: That of the entry.
 * Return: True where one of the locks spins.
 */
bool guardrail_locks_back(const struct guardrail_locks *own, const struct guardrail_record *record);

/**
 * guardrail_locks_left() - Handle the locks with which an entry returns.
 * @record: Record of the entry.
 *
 * If the domain itself called the entry, its caller holds the locks now; otherwise each is a
 * violation.
 *
 * Context: That of the entry.
 * Return: True where it has taken one.
 */
bool guardrail_locks_left(const struct guardrail_record *record);

#endif /* GUARDRAIL_DOMAIN_LOCKS_H */
