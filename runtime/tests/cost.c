// SPDX-License-Identifier: GPL-2.0-or-later
/* The cost of the primitives: nanoseconds of each, the median of several runs. */
#include <linux/ktime.h>
#include <linux/sort.h>

#include "test.h"

#define RUNS 9
#define CALLS 20000

static int by_size(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* An empty function, to measure the loop alone. */
static noinline int nothing(u32 domain, unsigned long p, unsigned long n)
{
	barrier();
	return 0;
}

static int check(u32 domain, unsigned long p, unsigned long n)
{
	return guardrail_check_write(domain, p, n);
}

static int swing(u32 domain, unsigned long p, unsigned long n)
{
	return guardrail_grant_fresh(domain, p, n) ?: guardrail_revoke(domain, p, n);
}

static int object(u32 domain, unsigned long p, unsigned long n)
{
	return guardrail_create_object(domain, p, n, 1) ?: guardrail_revoke(domain, p, n);
}

static int find(u32 domain, unsigned long p, unsigned long n)
{
	return guardrail_check_object(domain, p, 1);
}

/* A store by pointer to the caller's frame: the slow path of its check. */
static int own_frame(u32 domain, unsigned long p, unsigned long n)
{
	guardrail_write_slow(p, 8, domain, _THIS_IP_);
	return 0;
}

static void measure(const char *name, int (*call)(u32, unsigned long, unsigned long), unsigned long p, unsigned long n)
{
	u64 taken[RUNS];
	int run, i;

	for (run = 0; run < RUNS; run++) {
		u64 start = ktime_get_ns();

		for (i = 0; i < CALLS; i++)
			call(ONE, p, n);
		taken[run] = ktime_get_ns() - start;
		cond_resched();
	}
	sort(taken, RUNS, sizeof(u64), by_size, NULL);
	pr_info("# %s of %lu bytes: %llu ns\n", name, n, taken[RUNS / 2] / CALLS);
}

void test_cost(void)
{
	static const unsigned long sizes[] = { 64, 1500 };
	unsigned long p = (unsigned long)kzalloc(2048, GFP_KERNEL), here = 0;
	int i;

	if (!p || guardrail_prepare(p, 2048))
		return;
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		measure("an empty call", nothing, p, sizes[i]);
		measure("set_write and clear", swing, p, sizes[i]);
		guardrail_grant_fresh(ONE, p, sizes[i]);
		measure("set_write again", guardrail_grant_fresh, p, sizes[i]);
		measure("check_write", check, p, sizes[i]);
		guardrail_revoke(ONE, p, sizes[i]);
		measure("clear again", guardrail_revoke, p, sizes[i]);
		measure("set_object and clear", object, p, sizes[i]);
		guardrail_create_object(ONE, p, sizes[i], 1);
		measure("check_object", find, p, sizes[i]);
		guardrail_revoke(ONE, p, sizes[i]);
	}
	measure("store to the stack", own_frame, (unsigned long)&here, sizeof(here));
	kfree((void *)p);
}
