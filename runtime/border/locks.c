// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Locks that entries into guarded modules take. Each task notes those that its entries have taken and not given back, and those that they have given
 * back without having taken them. An entry that is ended leaves its locks as they were when it began; one that returns with a lock that it took
 * violates something.
 */
#include <linux/mutex.h>
#include <linux/rtnetlink.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

#include "border/custom.h"

enum lock_kind { OF_SPIN, OF_READER, OF_WRITER, OF_MUTEX, OF_SHARED, OF_EXCLUSIVE, OF_RTNL };

static const char *const names[] = {
	[OF_SPIN] = "spin lock", [OF_READER] = "reader's spin lock", [OF_WRITER] = "writer's spin lock", [OF_MUTEX] = "mutex",
	[OF_SHARED] = "reader's semaphore", [OF_EXCLUSIVE] = "writer's semaphore", [OF_RTNL] = "lock of rtnetlink",
};

static bool spins(u32 kind)
{
	return kind <= OF_WRITER;
}

static void remove(struct guardrail_locks *locks, unsigned int i)
{
	memmove(&locks->lock[i], &locks->lock[i + 1], (--locks->n - i) * sizeof(locks->lock[0]));
}

/* The innermost entry of the current task has taken a lock, or gives it back. Interrupts are off, since what interrupts notes its own there. */
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
	else if (new->taken)
		locks->more++;
}

static int changes(const struct guardrail_action *action, struct guardrail_frame *frame, u32 kind, bool taken)
{
	struct guardrail_lock lock = { .p = object_of(action, frame), .kind = kind, .taken = taken, .ip = frame->caller };
	struct guardrail_locks *locks;
	unsigned long flags;

	if (!lock.p)
		return 0;
	local_irq_save(flags);
	locks = guardrail_locks(&lock.record);
	if (locks)
		note(locks, &lock);
	local_irq_restore(flags);
	/* Whoever has waited for the lock of an entry that was ended goes no further; one that is about to be given back is given back first. */
	if (taken && unlikely(READ_ONCE(guardrail_dead_domains)))
		guardrail_crossing(action->domain, frame);
	return 0;
}

/* Whoever has taken it. */
static bool is_taken(unsigned long p, u32 kind)
{
	switch (kind) {
	case OF_SPIN:
		return raw_spin_is_locked((raw_spinlock_t *)p);
	case OF_READER:
		return atomic_read(&((rwlock_t *)p)->raw_lock.cnts) >= _QR_BIAS;
	case OF_WRITER:
		return READ_ONCE(((rwlock_t *)p)->raw_lock.wlocked) == _QW_LOCKED;
	case OF_MUTEX:
		return mutex_is_locked((struct mutex *)p);
	case OF_RTNL:
		return rtnl_is_locked();
	default:
		return rwsem_is_locked((struct rw_semaphore *)p);
	}
}

/* It may be given back by another entry than has taken it, but somebody has to have. */
static int given(const struct guardrail_action *action, struct guardrail_frame *frame, u32 kind)
{
	unsigned long p = object_of(action, frame);

	if (p && unlikely(!is_taken(p, kind)))
		guardrail_refuse(action, frame, "release of a lock at", p, "a lock that nobody has taken", "one that is taken");
	return changes(action, frame, kind, false);
}

/* A task that has the lock waits for itself. Two readers are none that wait for each other, unless a writer comes between. */
static int wanted(const struct guardrail_action *action, struct guardrail_frame *frame, u32 kind)
{
	unsigned long p = object_of(action, frame), flags;
	const struct guardrail_record *innermost;
	const struct guardrail_locks *locks;
	unsigned int i;
	int times = 0;

	local_irq_save(flags);
	locks = p ? guardrail_locks(&innermost) : NULL;
	for (i = 0; locks && i < locks->n; i++)
		/* An inner entry may have given back what an outer one has taken. */
		if (locks->lock[i].p == p && !(kind == OF_SHARED && locks->lock[i].kind == OF_SHARED))
			times += locks->lock[i].taken ? 1 : -1;
	local_irq_restore(flags);
	if (times > 0)
		guardrail_refuse(action, frame, "wait for a lock at", p, "the lock", "a lock that its task has not");
	return 0;
}

#define LOCK(name, kind)				\
	GUARDRAIL_CUSTOM(name##_taken)			\
	{						\
		return changes(action, frame, kind, true);	\
	}						\
	GUARDRAIL_CUSTOM(name##_given)			\
	{						\
		return given(action, frame, kind);	\
	}

/* Locks that tasks sleep for; to look costs too much for those that spin. */
#define WAITS(name, kind)				\
	GUARDRAIL_CUSTOM(name##_wanted)			\
	{						\
		return wanted(action, frame, kind);	\
	}

LOCK(spin, OF_SPIN)
LOCK(read, OF_READER)
LOCK(write, OF_WRITER)
LOCK(mutex, OF_MUTEX)
LOCK(shared, OF_SHARED)
LOCK(exclusive, OF_EXCLUSIVE)
LOCK(rtnl, OF_RTNL)
WAITS(mutex, OF_MUTEX)
WAITS(shared, OF_SHARED)
WAITS(exclusive, OF_EXCLUSIVE)

static void give(const struct guardrail_lock *lock)
{
	void *p = (void *)lock->p;

	switch (lock->kind) {
	case OF_SPIN:
		arch_spin_unlock(&((raw_spinlock_t *)p)->raw_lock);
		break;
	case OF_READER:
		arch_read_unlock(&((rwlock_t *)p)->raw_lock);
		break;
	case OF_WRITER:
		arch_write_unlock(&((rwlock_t *)p)->raw_lock);
		break;
	case OF_MUTEX:
		mutex_unlock(p);
		break;
	case OF_SHARED:
		up_read(p);
		break;
	case OF_EXCLUSIVE:
		up_write(p);
		break;
	case OF_RTNL:
		rtnl_unlock();
		break;
	}
}

static void take(const struct guardrail_lock *lock)
{
	void *p = (void *)lock->p;

	switch (lock->kind) {
	case OF_SPIN:
		arch_spin_lock(&((raw_spinlock_t *)p)->raw_lock);
		break;
	case OF_READER:
		arch_read_lock(&((rwlock_t *)p)->raw_lock);
		break;
	case OF_WRITER:
		arch_write_lock(&((rwlock_t *)p)->raw_lock);
		break;
	case OF_MUTEX:
		mutex_lock(p);
		break;
	case OF_SHARED:
		down_read(p);
		break;
	case OF_EXCLUSIVE:
		down_write(p);
		break;
	case OF_RTNL:
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

/* Gives back those that spin. */
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

/* The module itself has called the entry, by a pointer: the locks are those of the function that did so from now on. */
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

void guardrail_locks_left(const struct guardrail_record *record)
{
	struct guardrail_locks own;
	unsigned int i, n = 0;

	guardrail_locks_of(record, &own);
	if (record->previous && record->previous->entry && record->previous->entry->domain == record->entry->domain) {
		hand_on(record->previous, &own);
		return;
	}
	for (i = 0; i < own.n; i++)
		if (own.lock[i].taken && guardrail_report_lock(&own.lock[i], names[own.lock[i].kind], record->entry))
			own.lock[n++] = own.lock[i];
	own.n = n;
	if (n)
		guardrail_locks_back(&own, record);
}

/* What this entry holds when it returns is meant to be held: another one gives it back. */
GUARDRAIL_CUSTOM(locks_stay)
{
	const struct guardrail_record *record = guardrail_innermost();
	struct guardrail_locks own;

	if (record)
		guardrail_locks_of(record, &own);
	return 0;
}
