// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Locks that entries take; domain/locks.h describes them. A task's locks are in its note
 * (domain/entry.c), which only the task itself and its interrupts change, with interrupts off.
 */
#include <linux/mutex.h>
#include <linux/rtnetlink.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

#include "base/limits.h"
#include "domain/entry.h"
#include "domain/locks.h"
#include "domain/ops.h"
#include "domain/sound.h"
#include "domain/unwind.h"

/* The names of the kinds in reports. */
static const char *const names[] = {
	[GUARDRAIL_SPIN] = "spin lock", [GUARDRAIL_READER] = "reader's spin lock", [GUARDRAIL_WRITER] = "writer's spin lock", [GUARDRAIL_MUTEX] = "mutex",
	[GUARDRAIL_SHARED] = "reader's semaphore", [GUARDRAIL_EXCLUSIVE] = "writer's semaphore", [GUARDRAIL_RTNL] = "lock of rtnetlink",
};

static bool spins(u32 kind)
{
	return kind <= GUARDRAIL_WRITER;
}

static void remove(struct guardrail_locks *locks, unsigned int i)
{
	memmove(&locks->lock[i], &locks->lock[i + 1], (--locks->n - i) * sizeof(locks->lock[0]));
}

/*
 * Records that the innermost entry of the current task takes or releases a lock. Interrupts are
 * off, since interrupts record their own locks there.
 */
static void note(struct guardrail_locks *locks, const struct guardrail_lock *new)
{
	unsigned int i;

	for (i = locks->n; i-- > 0;) {
		struct guardrail_lock *lock = &locks->lock[i];

		if (lock->p == new->p && lock->kind == new->kind && lock->record == new->record && lock->taken != new->taken) {
			remove(locks, i);
			return;
		}
	}
	if (!new->taken && locks->more)
		locks->more--;
	else if (locks->n < ARRAY_SIZE(locks->lock))
		locks->lock[locks->n++] = *new;
	else if (new->taken) {
		locks->more++;
		guardrail_limit_reached(GUARDRAIL_LIMIT_LOCKS);
	}
}

void guardrail_lock_changes(struct guardrail_lock *lock)
{
	struct guardrail_locks *locks;
	unsigned long flags;

	local_irq_save(flags);
	locks = guardrail_locks(&lock->record);
	if (locks)
		note(locks, lock);
	local_irq_restore(flags);
}

int guardrail_lock_depth(unsigned long p, u32 kind)
{
	const struct guardrail_record *innermost;
	const struct guardrail_locks *locks;
	unsigned long flags;
	unsigned int i;
	int times = 0;

	local_irq_save(flags);
	locks = guardrail_locks(&innermost);
	for (i = 0; locks && i < locks->n; i++)
		/* An inner entry may have released what an outer one has taken. */
		if (locks->lock[i].p == p && !(kind == GUARDRAIL_SHARED && locks->lock[i].kind == GUARDRAIL_SHARED))
			times += locks->lock[i].taken ? 1 : -1;
	local_irq_restore(flags);
	return times;
}

static void give(const struct guardrail_lock *lock)
{
	void *p = (void *)lock->p;

	if (!guardrail_is_lock_sound(lock->p, lock->kind))
		return;
	switch (lock->kind) {
	case GUARDRAIL_SPIN:
		arch_spin_unlock(&((raw_spinlock_t *)p)->raw_lock);
		break;
	case GUARDRAIL_READER:
		arch_read_unlock(&((rwlock_t *)p)->raw_lock);
		break;
	case GUARDRAIL_WRITER:
		arch_write_unlock(&((rwlock_t *)p)->raw_lock);
		break;
	case GUARDRAIL_MUTEX:
		mutex_unlock(p);
		break;
	case GUARDRAIL_SHARED:
		up_read(p);
		break;
	case GUARDRAIL_EXCLUSIVE:
		up_write(p);
		break;
	case GUARDRAIL_RTNL:
		rtnl_unlock();
		break;
	}
}

static void take(const struct guardrail_lock *lock)
{
	void *p = (void *)lock->p;

	switch (lock->kind) {
	case GUARDRAIL_SPIN:
		arch_spin_lock(&((raw_spinlock_t *)p)->raw_lock);
		break;
	case GUARDRAIL_READER:
		arch_read_lock(&((rwlock_t *)p)->raw_lock);
		break;
	case GUARDRAIL_WRITER:
		arch_write_lock(&((rwlock_t *)p)->raw_lock);
		break;
	case GUARDRAIL_MUTEX:
		mutex_lock(p);
		break;
	case GUARDRAIL_SHARED:
		down_read(p);
		break;
	case GUARDRAIL_EXCLUSIVE:
		down_write(p);
		break;
	case GUARDRAIL_RTNL:
		rtnl_lock();
		break;
	}
}

void guardrail_locks_of(const struct guardrail_record *record, struct guardrail_locks *own)
{
	const struct guardrail_record *innermost;
	struct guardrail_locks *locks;
	unsigned long flags;
	unsigned int i;

	own->n = 0;
	local_irq_save(flags);
	locks = guardrail_locks(&innermost);
	for (i = locks ? locks->n : 0; i-- > 0;)
		if (locks->lock[i].record == record) {
			own->lock[own->n++] = locks->lock[i];
			remove(locks, i);
		}
	local_irq_restore(flags);
}

/* Releases the locks that spin. */
static bool give_spinning(const struct guardrail_locks *own)
{
	bool any = false;
	unsigned int i;

	for (i = 0; i < own->n; i++) {
		if (!spins(own->lock[i].kind) || !own->lock[i].taken)
			continue;
		give(&own->lock[i]);
		any = true;
	}
	return any;
}

bool guardrail_locks_back(const struct guardrail_locks *own, const struct guardrail_record *record)
{
	bool spinning = give_spinning(own);
	unsigned int i;

	guardrail_put_back(&record->saved);
	for (i = 0; i < own->n; i++)
		if (!own->lock[i].taken)
			take(&own->lock[i]);
		else if (!spins(own->lock[i].kind))
			give(&own->lock[i]);
	return spinning;
}

/* The domain itself has called the entry, by a pointer: from now on its caller holds the locks. */
static void hand_on(const struct guardrail_record *record, struct guardrail_locks *own)
{
	const struct guardrail_record *innermost;
	struct guardrail_locks *locks;
	unsigned long flags;
	unsigned int i;

	local_irq_save(flags);
	locks = guardrail_locks(&innermost);
	for (i = locks ? own->n : 0; i-- > 0;) {
		own->lock[i].record = record;
		note(locks, &own->lock[i]);
	}
	local_irq_restore(flags);
}

bool guardrail_locks_left(const struct guardrail_record *record)
{
	struct guardrail_locks own;
	unsigned int i, n = 0;
	bool any = false;

	guardrail_locks_of(record, &own);
	if (record->previous && record->previous->entry && record->previous->entry->domain == record->entry->domain) {
		hand_on(record->previous, &own);
		return false;
	}
	for (i = 0; i < own.n; i++) {
		any |= own.lock[i].taken;
		if (own.lock[i].taken && guardrail_domain_ops->lock_kept(&own.lock[i], names[own.lock[i].kind], record->entry))
			own.lock[n++] = own.lock[i];
	}
	own.n = n;
	if (n)
		guardrail_locks_back(&own, record);
	return any;
}
