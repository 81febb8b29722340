// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Locks that a kernel function keeps which faulted; watch/kept.h describes them. Its code says which they are: a call of
 * mutex_lock() or down_write(), with the address of a variable as argument. The lock itself says whether the task holds it.
 */
#include <linux/mutex.h>
#include <linux/rtnetlink.h>
#include <linux/rwsem.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/address.h"
#include "base/symbols.h"
#include "domain/locks.h"
#include "watch/kept.h"

/* Bytes of a function that are looked at, and of one that it calls. */
#define MAX_CODE 8192
#define MAX_CALLED 64
/* The argument is loaded so many bytes before the call, at most. */
#define BEFORE 48
/* Calls may lead to the padding before a function, or behind its landing instruction. */
#define PADDING 16
#define LANDING 4

#define CALL 0xe8
#define JUMP 0xe9
#define LENGTH 5
/* mov $imm32, %rdi and lea disp32(%rip), %rdi; 7 bytes each. */
static const u8 constant[] = { 0x48, 0xc7, 0xc7 };
static const u8 relative[] = { 0x48, 0x8d, 0x3d };
#define LOADS 7

#define SEMAPHORE 1UL

/* A piece of code that was read. */
struct piece {
	unsigned long at;
	const u8 *bytes;
	unsigned long n;
};

static bool leads_to(unsigned long target, unsigned long function)
{
	return target >= function - PADDING && target <= function + LANDING;
}

/* 0 for functions that take no such lock, 1 for mutexes, 2 for semaphores. */
static int takes(unsigned long target)
{
	if (leads_to(target, (unsigned long)mutex_lock) || leads_to(target, (unsigned long)mutex_lock_interruptible) ||
	    leads_to(target, (unsigned long)mutex_lock_killable))
		return 1;
	return leads_to(target, (unsigned long)down_write) || leads_to(target, (unsigned long)down_write_killable) ? 2 : 0;
}

static s32 number_at(const u8 *bytes)
{
	s32 number;

	memcpy(&number, bytes, sizeof(number));
	return number;
}

/* The variable whose address the code before a call loads; 0 where there is no such address. */
static unsigned long argument_of(const struct piece *piece, unsigned long call)
{
	unsigned long i;

	for (i = LOADS; i <= min(call, (unsigned long)BEFORE); i++) {
		const u8 *bytes = piece->bytes + call - i;

		if (!memcmp(bytes, constant, sizeof(constant)))
			return (unsigned long)(long)number_at(bytes + 3);
		if (!memcmp(bytes, relative, sizeof(relative)))
			return piece->at + call - i + LOADS + number_at(bytes + 3);
	}
	return 0;
}

static bool is_held(unsigned long p, bool semaphore)
{
#ifdef CONFIG_PREEMPT_RT
	return false;
#else
	unsigned long owner, place = semaphore ? offsetof(struct rw_semaphore, owner) : offsetof(struct mutex, owner);

	/* The lowest bits are flags. That of semaphores says that the owner reads. */
	return p >= KERNEL_HALF && !get_kernel_nofault(owner, (unsigned long *)(p + place)) && (owner & ~7UL) == (unsigned long)current &&
	       !(semaphore && owner & 1);
#endif
}

static void add(struct guardrail_kept *kept, unsigned long lock, bool semaphore)
{
	unsigned int i;

	if (!lock || !is_held(lock, semaphore))
		return;
	lock |= semaphore ? SEMAPHORE : 0;
	for (i = 0; i < kept->n; i++)
		if (kept->lock[i] == lock)
			return;
	if (kept->n < GUARDRAIL_KEPT)
		kept->lock[kept->n++] = lock;
}

static void add_calls(struct guardrail_kept *kept, const struct piece *piece, bool inner);

/* Adds what a function takes at its begin, such as rtnl_lock(). */
static void add_called(struct guardrail_kept *kept, unsigned long target)
{
	u8 bytes[MAX_CALLED];
	struct piece piece = { .at = target, .bytes = bytes, .n = sizeof(bytes) };

	if (target >= KERNEL_HALF && !copy_from_kernel_nofault(bytes, (void *)target, sizeof(bytes)))
		add_calls(kept, &piece, true);
}

static void add_calls(struct guardrail_kept *kept, const struct piece *piece, bool inner)
{
	unsigned long i;

	for (i = 0; i + LENGTH <= piece->n; i++) {
		unsigned long target;
		int kind;

		if (piece->bytes[i] != CALL && piece->bytes[i] != JUMP)
			continue;
		target = piece->at + i + LENGTH + number_at(piece->bytes + i + 1);
		kind = takes(target);
		if (kind)
			add(kept, argument_of(piece, i), kind == 2);
		else if (!inner && piece->bytes[i] == CALL)
			add_called(kept, target);
	}
}

void guardrail_kept_add(struct guardrail_kept *kept, unsigned long addr)
{
	unsigned long start, end;
	struct piece piece;

	if (!guardrail_symbol_range(addr, &start, &end))
		return;
	piece = (struct piece){ .at = start, .bytes = (const u8 *)start, .n = min(end - start, (unsigned long)MAX_CODE) };
	add_calls(kept, &piece, false);
}

void guardrail_kept_remove(struct guardrail_kept *kept, unsigned long addr)
{
	struct guardrail_kept others = { 0 };
	unsigned int i, j;

	if (!kept->n)
		return;
	guardrail_kept_add(&others, addr);
	for (i = 0; i < others.n; i++)
		for (j = 0; j < kept->n; j++)
			if (kept->lock[j] == others.lock[i])
				kept->lock[j--] = kept->lock[--kept->n];
}

/* True for locks that the module has taken by thunks. */
static bool is_noted(unsigned long p, bool semaphore)
{
	return guardrail_lock_depth(p, semaphore ? GUARDRAIL_EXCLUSIVE : GUARDRAIL_MUTEX) > 0;
}

void guardrail_kept_release(const struct guardrail_kept *kept)
{
	bool rtnl = guardrail_lock_depth(1, GUARDRAIL_RTNL) > 0;
	unsigned int i;

	for (i = 0; i < kept->n; i++) {
		unsigned long p = kept->lock[i] & ~SEMAPHORE;
		bool semaphore = kept->lock[i] & SEMAPHORE;

		if (!is_held(p, semaphore) || is_noted(p, semaphore))
			continue;
		/* It may be this one, whose variable has no name for modules. */
		if (rtnl && !semaphore && rtnl_is_locked())
			continue;
		pr_warn("%pS is released, which a function held that faulted\n", (void *)p);
		if (semaphore)
			up_write((struct rw_semaphore *)p);
		else
			mutex_unlock((struct mutex *)p);
	}
}
