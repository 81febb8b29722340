// SPDX-License-Identifier: GPL-2.0-or-later
/* Locks whose lists the kernel can follow; domain/sound.h describes them. */
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>

#include "base/address.h"
#include "base/region.h"
#include "domain/locks.h"
#include "domain/sound.h"
#include "rights/mask.h"
#include "rights/tag.h"

/*
 * How long a lock or list is looked at that does not look sound: another CPU may be changing it, and a host may have stopped that
 * CPU. In ns, and in looks, since the clock stands while the system is suspended.
 */
#define PATIENCE (100 * NSEC_PER_MSEC)
#define LOOKS 10000000

/* Zero before the first look. */
struct looks {
	u64 since;
	unsigned int count;
};

/* Flags in the pointer to the owner of a lock (kernel/locking/mutex.h, rwsem.c). */
#define OWNER_FLAGS 7UL
#define READER_OWNED 1UL

/* True where one more look may find it sound. */
static bool is_patient(struct looks *looks)
{
	u64 now = ktime_get_mono_fast_ns();

	if (!looks->count)
		looks->since = now;
	cpu_relax();
	return ++looks->count < LOOKS && now - looks->since < PATIENCE;
}

bool guardrail_links_return(const struct list_head *node, struct list_head *links)
{
	struct list_head next, prev;

	if (!guardrail_links_of(node, links))
		return false;
	if (!links->next && !links->prev)
		return true;
	return guardrail_links_of(links->next, &next) && next.prev == node && guardrail_links_of(links->prev, &prev) && prev.next == node;
}

/* True where no driver may write the node. */
static bool is_kernels(const struct list_head *node)
{
	return guardrail_is_kernels((unsigned long)node);
}

static bool look(const struct list_head *head)
{
	struct list_head links;

	return guardrail_links_return(head, &links) &&
	       (links.next == head || !links.next || (is_kernels(links.next) && is_kernels(links.prev)));
}

bool guardrail_is_list_sound(const struct list_head *head)
{
	struct looks looks = {};

	while (!look(head))
		if (!is_patient(&looks))
			return false;
	return true;
}

bool guardrail_is_first_sound(const void *place)
{
	struct list_head links;
	struct looks looks = {};

	do {
		const struct list_head *node = pointer_at(place);

		if (!node)
			return true;
		if (is_kernels(node) && guardrail_links_return(node, &links) && links.next)
			return true;
	} while (is_patient(&looks));
	return false;
}

#ifdef FIRST_WAITER
#define ARE_WAITERS_SOUND(lock) guardrail_is_first_sound(&(lock)->first_waiter)
#else
#define ARE_WAITERS_SOUND(lock) guardrail_is_list_sound(&(lock)->wait_list)
#endif

#ifndef CONFIG_PREEMPT_RT
static bool is_owner(unsigned long owner)
{
	struct guardrail_region task, own;

	owner &= ~OWNER_FLAGS;
	if (!owner || owner == (unsigned long)current)
		return true;
	return guardrail_region_of(owner, &task) && guardrail_region_of((unsigned long)current, &own) && task.start == owner &&
	       task.end - task.start == own.end - own.start;
}

/* The owner may change, and end, until it is looked at. Owners with one of @flags are no tasks. */
static bool is_owned(const atomic_long_t *owner, unsigned long flags)
{
	struct looks looks = {};

	do {
		unsigned long now = atomic_long_read(owner);

		if (now & flags || is_owner(now))
			return true;
	} while (is_patient(&looks));
	return false;
}

/* A mutex that nobody waits for is taken and released without a look at its list. */
static bool is_mutex_sound(const struct mutex *mutex)
{
	unsigned long owner = atomic_long_read(&mutex->owner);

	if (!owner || owner == (unsigned long)current)
		return true;
	return is_owned(&mutex->owner, 0) && ARE_WAITERS_SOUND(mutex);
}

bool guardrail_is_lock_sound(unsigned long p, u32 kind)
{
	const struct rw_semaphore *sem = (const void *)p;

	if (kind == GUARDRAIL_MUTEX)
		return is_mutex_sound((const void *)p);
	return (kind != GUARDRAIL_SHARED && kind != GUARDRAIL_EXCLUSIVE) || (is_owned(&sem->owner, READER_OWNED) && ARE_WAITERS_SOUND(sem));
}
#else
/* Its locks keep their waiters in trees. */
bool guardrail_is_lock_sound(unsigned long p, u32 kind)
{
	return true;
}
#endif
