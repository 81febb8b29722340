/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declarations that the files of guardrail_test.ko share: results as TAP, and checks as the
 * rewriter inserts them.
 */
#ifndef GUARDRAIL_TEST_H
#define GUARDRAIL_TEST_H

#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <asm/asm.h>

#include "guardrail_abi.h"

#undef pr_fmt
#define pr_fmt(fmt) "guardrail_test: " fmt

/* The domains of the tests. */
#define ONE 1
#define TWO 2
#define LAST (GUARDRAIL_DOMAINS - 1)

/* Prints the result of a test, with the first expectation that was not met. */
void test_result(const char *name, bool ok);
/* Sets a parameter of guardrail.ko as a user does. */
bool test_set_parameter(const char *name, const char *value);
/* Prints an expectation that is not met, and returns false for it. */
bool test_expect(bool met, const char *what, const char *file, int line);
#define EXPECT(condition) test_expect(condition, #condition, __FILE__, __LINE__)

/*
 * The check of a store as the rewriter inserts it: true where it passes. An unreadable tag is left
 * to the slow path, and counts as not passed.
 */
static inline bool inline_check(unsigned long addr, u8 wanted)
{
	unsigned long entry = addr;
	bool passed = false;

	asm volatile("	shr	%[shift], %[entry]\n"
		     "	add	%%gs:guardrail_table(%%rip), %[entry]\n"
		     "1:	cmpb	%[wanted], (%[entry])\n"
		     "	jne	2f\n"
		     "	movb	$1, %[passed]\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : [entry] "+r" (entry), [passed] "+m" (passed)
		     : [shift] "i" (GUARDRAIL_SLOT_SHIFT), [wanted] "r" (wanted)
		     : "cc", "memory");
	return passed;
}

/*
 * True where a store is allowed, checked as guarded code does: first inline, then by the slow path,
 * which reports violations.
 */
bool test_store(unsigned long addr, unsigned long size, u32 domain);

/*
 * Calls a function as a thunk does that lets the kernel enter a module. True where the function was ended, and what it
 * keeps for its caller, the counters and the interrupts are as they were.
 */
bool test_ends(void (*function)(void));

/* What thunks call where a lock is taken, released or waited for. */
#define CUSTOM(name) int guardrail_custom_##name(const struct guardrail_action *action, struct guardrail_call *call)
CUSTOM(spin_taken);
CUSTOM(spin_given);
CUSTOM(mutex_taken);
CUSTOM(mutex_given);
CUSTOM(mutex_wanted);
CUSTOM(shared_taken);
CUSTOM(shared_given);
CUSTOM(shared_wanted);
CUSTOM(exclusive_given);
CUSTOM(exclusive_wanted);
/* What they call in transactions where the kernel changes something that others may know. */
CUSTOM(transact_shared);
/* What they call where the module passes on, gets or gives up a pointer. */
CUSTOM(require_ref);
CUSTOM(require_kernels);
CUSTOM(grant_ref);
CUSTOM(revoke_ref);

void test_admission(void);
void test_rights(void);
void test_checks(void);
void test_life(void);
void test_actions(void);
void test_entries(void);
void test_faults(void);
void test_counts(void);
void test_text(void);
void test_frames(void);
void test_races(void);
void test_reach(void);
void test_packets(void);
void test_sound(void);
void test_transact(void);
void test_stuck(void);
void test_cost(void);

#endif /* GUARDRAIL_TEST_H */
