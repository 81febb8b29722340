/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What lockdep's suite needs on a kernel without lockdep.
 *
 * The suite resets lockdep after each case, and then uses the same locks again. Nothing resets a checker, so here each
 * case has locks of its own.
 *
 * The suite marks parts of a case as run in an interrupt or a softirq: it changes preempt_count, or only lockdep's
 * own state. Here such parts do run there. A case is called once for each of its parts, in the part's context, and
 * each time does what belongs to this part.
 */
#ifndef EXAM_LOCKING_H
#define EXAM_LOCKING_H

#include "exam.h"
#include <linux/debug_locks.h>
#include <linux/hardirq.h>
#include <linux/interrupt.h>
#include <linux/irq_work.h>
#include <linux/irqflags.h>
#include <linux/kallsyms.h>
#include <linux/local_lock.h>
#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/rtmutex.h>
#include <linux/rwsem.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/ww_mutex.h>

/* The suite's own, which the kernel's headers leave out without lockdep. */
#undef force_read_lock_recursive
#undef locking_selftest

/* Most cases of one load. */
#define EXAM_CASES		400

/**
 * enum exam_context - Where a part of a case runs.
 * @EXAM_TASK: In the process that wrote the name of the case.
 * @EXAM_HARDIRQ: In an interrupt.
 * @EXAM_SOFTIRQ: In a tasklet.
 */
enum exam_context {
	EXAM_TASK,
	EXAM_HARDIRQ,
	EXAM_SOFTIRQ,
};

/**
 * struct exam_parts - The parts of the case under way.
 * @of_case: Number of the case, by which it finds its locks.
 * @at: The part that the call of the case has come to.
 * @turn: The part that this call does.
 * @contexts: Where each part runs. Known up to @at.
 *
 * One case runs at a time, and one call of it.
 */
static struct exam_parts {
	unsigned int of_case;
	unsigned int at;
	unsigned int turn;
	enum exam_context contexts[16];
} exam_parts;

/* Another part begins; the first call of a case comes past all of them. */
static noinline void exam_part(enum exam_context context)
{
	if (exam_parts.at + 1 < ARRAY_SIZE(exam_parts.contexts))
		exam_parts.at++;
	exam_parts.contexts[exam_parts.at] = context;
}

#undef __irq_enter
#undef __irq_exit
#undef lockdep_softirq_enter
#undef lockdep_softirq_exit
#define __irq_enter()		exam_part(EXAM_HARDIRQ)
#define __irq_exit()		exam_part(EXAM_TASK)
#define lockdep_softirq_enter()	exam_part(EXAM_SOFTIRQ)
#define lockdep_softirq_exit()	exam_part(EXAM_TASK)

/* In the calls for other parts, the suite would complain about the context. */
#undef WARN_ON
#define WARN_ON(x)		({ bool bad = (x); bad; })

/* What cases with several parts do. */
#define exam_op(op, ...)				\
	do {						\
		if (exam_parts.at == exam_parts.turn)	\
			op(__VA_ARGS__);		\
	} while (0)
#undef local_irq_disable
#undef local_irq_enable
#undef local_lock
#undef local_unlock
#undef raw_spin_lock
#undef raw_spin_unlock
#undef read_lock
#undef read_unlock
#undef write_lock
#undef write_unlock
#define local_bh_disable()	exam_op(local_bh_disable)
#define local_bh_enable()	exam_op(local_bh_enable)
#define local_irq_disable()	exam_op(raw_local_irq_disable)
#define local_irq_enable()	exam_op(raw_local_irq_enable)
#define local_lock(lock)	exam_op(__local_lock, lock)
#define local_unlock(lock)	exam_op(__local_unlock, lock)
#define mutex_lock(lock)	exam_op(mutex_lock, lock)
#define mutex_unlock(lock)	exam_op(mutex_unlock, lock)
#define raw_spin_lock(lock)	exam_op(_raw_spin_lock, lock)
#define raw_spin_unlock(lock)	exam_op(_raw_spin_unlock, lock)
#define read_lock(lock)		exam_op(_raw_read_lock, lock)
#define read_unlock(lock)	exam_op(_raw_read_unlock, lock)
#define spin_lock(lock)		exam_op(spin_lock, lock)
#define spin_unlock(lock)	exam_op(spin_unlock, lock)
#define write_lock(lock)	exam_op(_raw_write_lock, lock)
#define write_unlock(lock)	exam_op(_raw_write_unlock, lock)
#define rcu_read_lock()		exam_op(rcu_read_lock)
#define rcu_read_unlock()	exam_op(rcu_read_unlock)
#define rcu_read_lock_bh()	exam_op(rcu_read_lock_bh)
#define rcu_read_unlock_bh()	exam_op(rcu_read_unlock_bh)
#define rcu_read_lock_sched()	exam_op(rcu_read_lock_sched)
#define rcu_read_unlock_sched()	exam_op(rcu_read_unlock_sched)

/* A variable of the suite becomes an array, with an element for each case. The suite initializes them. */
#undef DECLARE_RWSEM
#undef DEFINE_MUTEX
#undef DEFINE_RAW_SPINLOCK
#undef DEFINE_RT_MUTEX
#undef DEFINE_RWLOCK
#undef DEFINE_SPINLOCK
#define DECLARE_RWSEM(x)	struct rw_semaphore x##_of[EXAM_CASES]
#define DEFINE_MUTEX(x)		struct mutex x##_of[EXAM_CASES]
#define DEFINE_RAW_SPINLOCK(x)	raw_spinlock_t x##_of[EXAM_CASES]
#define DEFINE_RT_MUTEX(x)	struct rt_mutex x##_of[EXAM_CASES]
#define DEFINE_RWLOCK(x)	rwlock_t x##_of[EXAM_CASES]
#define DEFINE_SPINLOCK(x)	spinlock_t x##_of[EXAM_CASES]
#define lock_A	lock_A_of[exam_parts.of_case]
#define lock_B	lock_B_of[exam_parts.of_case]
#define lock_C	lock_C_of[exam_parts.of_case]
#define lock_D	lock_D_of[exam_parts.of_case]
#define lock_X1	lock_X1_of[exam_parts.of_case]
#define lock_X2	lock_X2_of[exam_parts.of_case]
#define lock_Y1	lock_Y1_of[exam_parts.of_case]
#define lock_Y2	lock_Y2_of[exam_parts.of_case]
#define lock_Z1	lock_Z1_of[exam_parts.of_case]
#define lock_Z2	lock_Z2_of[exam_parts.of_case]
#define raw_lock_A	raw_lock_A_of[exam_parts.of_case]
#define raw_lock_B	raw_lock_B_of[exam_parts.of_case]
#define rwlock_A	rwlock_A_of[exam_parts.of_case]
#define rwlock_B	rwlock_B_of[exam_parts.of_case]
#define rwlock_C	rwlock_C_of[exam_parts.of_case]
#define rwlock_D	rwlock_D_of[exam_parts.of_case]
#define rwlock_X1	rwlock_X1_of[exam_parts.of_case]
#define rwlock_X2	rwlock_X2_of[exam_parts.of_case]
#define rwlock_Y1	rwlock_Y1_of[exam_parts.of_case]
#define rwlock_Y2	rwlock_Y2_of[exam_parts.of_case]
#define rwlock_Z1	rwlock_Z1_of[exam_parts.of_case]
#define rwlock_Z2	rwlock_Z2_of[exam_parts.of_case]
#define mutex_A	mutex_A_of[exam_parts.of_case]
#define mutex_B	mutex_B_of[exam_parts.of_case]
#define mutex_C	mutex_C_of[exam_parts.of_case]
#define mutex_D	mutex_D_of[exam_parts.of_case]
#define mutex_X1	mutex_X1_of[exam_parts.of_case]
#define mutex_X2	mutex_X2_of[exam_parts.of_case]
#define mutex_Y1	mutex_Y1_of[exam_parts.of_case]
#define mutex_Y2	mutex_Y2_of[exam_parts.of_case]
#define mutex_Z1	mutex_Z1_of[exam_parts.of_case]
#define mutex_Z2	mutex_Z2_of[exam_parts.of_case]
#define rwsem_A	rwsem_A_of[exam_parts.of_case]
#define rwsem_B	rwsem_B_of[exam_parts.of_case]
#define rwsem_C	rwsem_C_of[exam_parts.of_case]
#define rwsem_D	rwsem_D_of[exam_parts.of_case]
#define rwsem_X1	rwsem_X1_of[exam_parts.of_case]
#define rwsem_X2	rwsem_X2_of[exam_parts.of_case]
#define rwsem_Y1	rwsem_Y1_of[exam_parts.of_case]
#define rwsem_Y2	rwsem_Y2_of[exam_parts.of_case]
#define rwsem_Z1	rwsem_Z1_of[exam_parts.of_case]
#define rwsem_Z2	rwsem_Z2_of[exam_parts.of_case]
#define rtmutex_A	rtmutex_A_of[exam_parts.of_case]
#define rtmutex_B	rtmutex_B_of[exam_parts.of_case]
#define rtmutex_C	rtmutex_C_of[exam_parts.of_case]
#define rtmutex_D	rtmutex_D_of[exam_parts.of_case]
#define rtmutex_X1	rtmutex_X1_of[exam_parts.of_case]
#define rtmutex_X2	rtmutex_X2_of[exam_parts.of_case]
#define rtmutex_Y1	rtmutex_Y1_of[exam_parts.of_case]
#define rtmutex_Y2	rtmutex_Y2_of[exam_parts.of_case]
#define rtmutex_Z1	rtmutex_Z1_of[exam_parts.of_case]
#define rtmutex_Z2	rtmutex_Z2_of[exam_parts.of_case]

/* The suite's declarations of these become pointers; they are set before each case. */
#define o			(*exam_o)
#define o2			(*exam_o2)
#define o3			(*exam_o3)
#define t			(*exam_t)
#define t2			(*exam_t2)

#endif
