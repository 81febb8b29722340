// SPDX-License-Identifier: GPL-2.0-or-later
/* The part of KASAN's suite that is a module, with its functions as cases. */
#include "exam.h"
/* A callback of this suite runs after the init function, so it cannot be part of its memory. */
#undef __init
#define __init
#pragma push_macro("module_init")
#undef module_init
#define module_init(init)	static __maybe_unused int (*suite_init)(void) = init
#include "kasan_test_module.c"
#pragma pop_macro("module_init")

#define EXAM_CASE(function) static void case_##function(struct kunit *test) { function(); }
EXAM_CASE(copy_user_test)
EXAM_CASE(kasan_rcu_uaf)
EXAM_CASE(kasan_workqueue_uaf)

static struct kunit_case exam_cases[] = {
	{ .run_case = case_copy_user_test, .name = "copy_user_test" },
	{ .run_case = case_kasan_rcu_uaf, .name = "kasan_rcu_uaf" },
	{ .run_case = case_kasan_workqueue_uaf, .name = "kasan_workqueue_uaf" },
	{}
};

static struct kunit_suite exam_suite = { .name = "kasan_module", .test_cases = exam_cases };

exam(&exam_suite);
