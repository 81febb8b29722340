/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * KUnit for the sanitizers' test suites on a stock kernel: each case is a function that runs alone, when its
 * name is written to /dev/exam.
 *
 * The kernel is built without KUnit and without the sanitizers. So this file comes before a suite's own
 * includes, and takes the place of the headers that need either.
 */
#ifndef EXAM_H
#define EXAM_H

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/kasan.h>
#include <linux/kernel.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

/* Headers that are replaced: KUnit's own. */
#define _KUNIT_TEST_H

/* The case under way, as far as cases ask for it. */
struct kunit {
	void *priv;
	const char *name;
	/* Where a case has a parameter, it is a number of threads. */
	const void *param_value;
};

/* A case, as suites list them. */
struct kunit_case {
	void (*run_case)(struct kunit *test);
	const char *name;
};

/* A suite; what it does before and after is about its sanitizer's reports, apart from init and exit. */
struct kunit_suite {
	const char *name;
	int (*init)(struct kunit *test);
	void (*exit)(struct kunit *test);
	int (*suite_init)(struct kunit_suite *suite);
	void (*suite_exit)(struct kunit_suite *suite);
	struct kunit_case *test_cases;
};

struct kunit_resource {
	int unused;
};

#define KUNIT_CASE(name_of_case)	{ .run_case = name_of_case, .name = #name_of_case }
#define KUNIT_CASE_PARAM(name_of_case, generator) KUNIT_CASE(name_of_case)
#define KUNIT_PARAM_DESC_SIZE		128
#define KUNIT_SUBTEST_INDENT		""

/* What a sanitizer would have reported is Guardrail's to say, so expectations compare nothing. */
#define exam_unused(x)			do { if (0) (void)(x); } while (0)
#define KUNIT_FAIL(test, ...)		do { } while (0)
#define KUNIT_EXPECT_TRUE(test, x)	exam_unused(x)
#define KUNIT_EXPECT_FALSE(test, x)	exam_unused(x)
/* These read what they compare, as that may be the case's fault. */
#define exam_compare(a, op, b)		do { exam_sink = (unsigned long)((a) op (b)); } while (0)
#define KUNIT_EXPECT_EQ(test, a, b)	exam_compare(a, ==, b)
#define KUNIT_EXPECT_EQ_MSG(test, a, b, ...) exam_compare(a, ==, b)
#define KUNIT_EXPECT_GE(test, a, b)	exam_compare(a, >=, b)
#define KUNIT_EXPECT_LT(test, a, b)	exam_compare(a, <, b)
#define KUNIT_EXPECT_LE(test, a, b)	exam_compare(a, <=, b)
#define KUNIT_EXPECT_NE(test, a, b)	exam_compare(a, !=, b)
#define KUNIT_EXPECT_PTR_EQ(test, a, b)	exam_compare((void *)(a), ==, (void *)(b))
#define KUNIT_EXPECT_PTR_NE(test, a, b)	exam_compare((void *)(a), !=, (void *)(b))
#define KUNIT_ASSERT_FALSE(test, x)	exam_unused(x)
#define KUNIT_ASSERT_TRUE(test, x)	exam_unused(x)
#define KUNIT_ASSERT_TRUE_MSG(test, x, ...) exam_unused(x)
/* Only a kernel whose krealloc knows of the fault returns NULL here. */
#define KUNIT_ASSERT_NULL(test, x)	exam_unused(x)
#define KUNIT_ASSERT_EQ(test, a, b)	exam_compare(a, ==, b)
#define KUNIT_ASSERT_GE(test, a, b)	exam_compare(a, >=, b)
#define KUNIT_ASSERT_LT(test, a, b)	exam_compare(a, <, b)
#define KUNIT_ASSERT_NOT_ERR_OR_NULL(test, pointer)	\
	do {						\
		if (IS_ERR_OR_NULL(pointer))		\
			return;				\
	} while (0)

#define kunit_skip(test, ...)		do { pr_info("exam: skipped: " __VA_ARGS__); return; } while (0)
#define kunit_err(test, ...)		pr_err(__VA_ARGS__)
#define kunit_warn(test, ...)		pr_warn(__VA_ARGS__)
#define kunit_info(test, ...)		do { } while (0)
#define kunit_add_named_resource(...)	do { } while (0)

#define kunit_test_suite(suite)		exam(&suite)
#define kunit_test_suites(suite)	exam(suite)

/* A volatile store that no branch can be folded into. */
static volatile unsigned long exam_sink __maybe_unused;

/* Defines the module that runs the cases of a suite. */
#define exam(of_suite)							\
	static ssize_t exam_write(struct file *file, const char __user *from, size_t size, loff_t *at) \
	{								\
		return exam_run(of_suite, from, size) ?: size;		\
	}								\
	static const struct file_operations exam_operations = {		\
		.owner = THIS_MODULE,					\
		.write = exam_write,					\
	};								\
	static struct miscdevice exam_device = {			\
		.minor = MISC_DYNAMIC_MINOR,				\
		.name = "exam",						\
		.fops = &exam_operations,				\
	};								\
	module_misc_device(exam_device)

/**
 * exam_run() - Runs the case whose name was written, with what its suite does before and after each case.
 * @suite: The suite.
 * @from: The name, without an end of line.
 * @size: Its length.
 *
 * Context: The process that wrote the name. A case that oopses ends it, and no other.
 * Return: 0, or -EINVAL where the suite has no such case.
 */
static noinline __maybe_unused int exam_run(struct kunit_suite *suite, const char __user *from, size_t size)
{
	struct kunit test = { .name = "", .param_value = (void *)2 };
	struct kunit_case *one;
	char name[64] = "";

	if (size >= sizeof(name) || copy_from_user(name, from, size))
		return -EINVAL;
	for (one = suite->test_cases; one->run_case; one++) {
		if (strcmp(one->name, name))
			continue;
		test.name = one->name;
		if (suite->init)
			suite->init(&test);
		one->run_case(&test);
		if (suite->exit)
			suite->exit(&test);
		/* A callback of the case must not outlive the module. */
		rcu_barrier();
		return 0;
	}
	return -EINVAL;
}

#endif
