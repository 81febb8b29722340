// SPDX-License-Identifier: GPL-2.0-or-later
/* Locks that drivers take and release: each is recorded, and releases and waits are checked. */
#include <linux/mutex.h>
#include <linux/rtnetlink.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

#include "border/custom.h"
#include "domain/counts.h"
#include "domain/entry.h"
#include "domain/locks.h"
#include "domain/sound.h"
#include "domain/unwind.h"
#include "transact/transaction.h"

static int changes(const struct guardrail_action *action, struct guardrail_call *call, u32 kind, bool taken)
{
	struct guardrail_lock lock = { .p = object_of(action, call), .kind = kind, .taken = taken, .ip = call->caller };

	if (!lock.p)
		return 0;
	guardrail_lock_changes(&lock);
	/* A thread that waited for the lock of an entry that was ended stops here. A lock to be released is released first. */
	if (taken && unlikely(READ_ONCE(guardrail_dead_domains)))
		guardrail_crossing(action->domain, call);
	return 0;
}

/* True where any context holds the lock. */
static bool is_taken(unsigned long p, u32 kind)
{
	switch (kind) {
	case GUARDRAIL_SPIN:
		return raw_spin_is_locked((raw_spinlock_t *)p);
	case GUARDRAIL_READER:
		return atomic_read(&((rwlock_t *)p)->raw_lock.cnts) >= _QR_BIAS;
	case GUARDRAIL_WRITER:
		return READ_ONCE(((rwlock_t *)p)->raw_lock.wlocked) == _QW_LOCKED;
	case GUARDRAIL_MUTEX:
		return mutex_is_locked((struct mutex *)p);
	case GUARDRAIL_RTNL:
		return rtnl_is_locked();
	default:
		return rwsem_is_locked((struct rw_semaphore *)p);
	}
}

/* The kernel follows the lock's list. */
static void require_sound(const struct guardrail_action *action, const struct guardrail_call *call, unsigned long p, u32 kind)
{
	if (unlikely(!guardrail_is_lock_sound(p, kind)))
		guardrail_refuse(action, call, "use of a lock at", p, "an owner or waiters that are no tasks", "a lock");
}

/* Another entry than the one that took it may release it, but some entry must hold it. */
static int given(const struct guardrail_action *action, struct guardrail_call *call, u32 kind)
{
	unsigned long p = object_of(action, call);

	if (p && unlikely(!is_taken(p, kind)))
		guardrail_refuse(action, call, "release of a lock at", p, "a lock that nobody has taken", "one that is taken");
	if (p)
		require_sound(action, call, p, kind);
	if (is_transacting())
		guardrail_transact_released();
	return changes(action, call, kind, false);
}

/* A task that waits for a lock that it holds waits forever. Two readers do not, unless a writer is between them. */
static int wanted(const struct guardrail_action *action, struct guardrail_call *call, u32 kind)
{
	unsigned long p = object_of(action, call);

	if (p && guardrail_lock_depth(p, kind) > 0)
		guardrail_refuse(action, call, "wait for a lock at", p, "the lock", "a lock that its task has not");
	if (p)
		require_sound(action, call, p, kind);
	return 0;
}

#define LOCK(name, kind)				\
	GUARDRAIL_CUSTOM(name##_taken)			\
	{						\
		return changes(action, call, kind, true);	\
	}						\
	GUARDRAIL_CUSTOM(name##_given)			\
	{						\
		return given(action, call, kind);	\
	}

/* Locks that tasks sleep for. For those that spin the check would cost too much. */
#define WAITS(name, kind)				\
	GUARDRAIL_CUSTOM(name##_wanted)			\
	{						\
		return wanted(action, call, kind);	\
	}

LOCK(spin, GUARDRAIL_SPIN)
LOCK(read, GUARDRAIL_READER)
LOCK(write, GUARDRAIL_WRITER)
LOCK(mutex, GUARDRAIL_MUTEX)
LOCK(shared, GUARDRAIL_SHARED)
LOCK(exclusive, GUARDRAIL_EXCLUSIVE)
LOCK(rtnl, GUARDRAIL_RTNL)
WAITS(mutex, GUARDRAIL_MUTEX)
WAITS(shared, GUARDRAIL_SHARED)
WAITS(exclusive, GUARDRAIL_EXCLUSIVE)

/* The entry is meant to return with its locks held, or without those of another one, which goes on from there. */
GUARDRAIL_CUSTOM(locks_stay)
{
	struct guardrail_record *record = guardrail_innermost();
	struct guardrail_locks own;

	if (!record)
		return 0;
	guardrail_locks_of(record, &own);
	guardrail_counts_stay(record);
	return 0;
}
