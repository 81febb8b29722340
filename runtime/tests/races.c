// SPDX-License-Identifier: GPL-2.0-or-later
/* Two CPUs at the same bytes: a right that a domain holds is never missed, whatever others do meanwhile. */
#include <linux/delay.h>
#include <linux/kthread.h>

#include "test.h"

#define MILLISECONDS 700
#define MOST_WAITS 100

/* The action that one of two threads repeats; false where a result was wrong. */
struct racer {
	bool (*round)(unsigned long p, unsigned long n);
	unsigned long p;
	unsigned long rounds;
	bool ok;
};

static bool race_over;

static int run(void *data)
{
	struct racer *racer = data;
	unsigned long n;

	for (n = 0; !READ_ONCE(race_over) && racer->ok; n++) {
		racer->ok = racer->round(racer->p, n);
		WRITE_ONCE(racer->rounds, n + 1);
		if (!(n % 64))
			cond_resched();
	}
	while (!kthread_should_stop())
		msleep(1);
	return 0;
}

static bool has_raced(const struct racer *racer)
{
	return READ_ONCE(racer->rounds) > 100;
}

static void race(const char *name, bool (*first)(unsigned long, unsigned long),
		 bool (*second)(unsigned long, unsigned long), unsigned long p)
{
	struct racer racers[] = {
		{ .round = first, .p = p, .ok = true },
		{ .round = second, .p = p, .ok = true },
	};
	struct task_struct *threads[2];
	int i, waits = 0;

	WRITE_ONCE(race_over, false);
	for (i = 0; i < 2; i++) {
		threads[i] = kthread_create(run, &racers[i], "guardrail_race");
		if (IS_ERR(threads[i])) {
			EXPECT(!"a thread was made");
			continue;
		}
		kthread_bind(threads[i], i % num_online_cpus());
		wake_up_process(threads[i]);
	}
	/* A starved guest gets little of the time, but both are to have met. */
	do
		msleep(MILLISECONDS);
	while (!(has_raced(&racers[0]) && has_raced(&racers[1])) && ++waits < MOST_WAITS);
	WRITE_ONCE(race_over, true);
	for (i = 0; i < 2; i++)
		if (!IS_ERR(threads[i]))
			kthread_stop(threads[i]);
	pr_info("# %lu and %lu rounds\n", racers[0].rounds, racers[1].rounds);
	EXPECT(racers[0].ok && racers[1].ok);
	EXPECT(has_raced(&racers[0]) && has_raced(&racers[1]));
	guardrail_revoke_all(ONE);
	guardrail_revoke_all(TWO);
	test_result(name, true);
}

/* The halves of one slot, of one domain. */
static bool low_half(unsigned long p, unsigned long n)
{
	return !guardrail_grant_fresh(ONE, p, 4) && guardrail_check_write(ONE, p, 4) && !guardrail_revoke(ONE, p, 4) &&
	       !guardrail_check_write(ONE, p, 1);
}

static bool high_half(unsigned long p, unsigned long n)
{
	return !guardrail_grant_fresh(ONE, p + 4, 4) && guardrail_check_write(ONE, p + 4, 4) &&
	       !guardrail_revoke(ONE, p + 4, 4) && !guardrail_check_write(ONE, p + 4, 1);
}

/*
 * One domain holds some bytes all the time, while another is granted and loses others of the same
 * slot.
 */
static bool store_through_check(unsigned long p, unsigned long n)
{
	return test_store(p, 4, ONE) && guardrail_check_write(ONE, p, 4);
}

static bool other_bytes(unsigned long p, unsigned long n)
{
	unsigned long from = p + 4 + n % 4;

	return !guardrail_grant_fresh(TWO, from, 1) && test_store(from, 1, TWO) && !guardrail_revoke(TWO, from, 1) &&
	       !guardrail_check_write(TWO, from, 1);
}

/*
 * One domain is granted and loses memory in whole slots, while another has an object and some bytes
 * in it.
 */
static bool whole_range(unsigned long p, unsigned long n)
{
	return !guardrail_grant_fresh(ONE, p, 256) && guardrail_check_write(ONE, p, 256) && !guardrail_revoke(ONE, p, 256) &&
	       !guardrail_check_write(ONE, p + 64, 1);
}

static bool uses_object(unsigned long p, unsigned long n)
{
	return guardrail_check_object(TWO, p + 64, 9) && test_store(p + 72, 8, TWO) && test_store(p + 84, 4, TWO) &&
	       !guardrail_move_object(TWO, p + 64, 9, n, n + 1) && !guardrail_check_write(TWO, p + 64, 8) &&
	       guardrail_find_object(TWO, p, 256) == p + 64;
}

/* An object begins and ends in memory that another domain has all the time. */
static bool keeps_memory(unsigned long p, unsigned long n)
{
	return test_store(p + 64, 32, ONE) && guardrail_check_write(ONE, p, 256);
}

static bool object_within(unsigned long p, unsigned long n)
{
	unsigned long at = p + 8 * (n % 16);

	return !guardrail_create_object(TWO, at, 64, 9) && !guardrail_grant_fields(TWO, at, &(struct guardrail_field){ 8, 8 }, 1) &&
	       guardrail_check_object(TWO, at, 9) && test_store(at + 8, 8, TWO) && !guardrail_revoke(TWO, at, 64) &&
	       !guardrail_check_object(TWO, at, 9);
}

/* New parts of the table, from both sides at once. */
static bool new_parts(unsigned long p, unsigned long n)
{
	unsigned long at = (p & ~((1UL << 40) - 1)) + (1UL << 42) + ((n % 4096) << 18);
	u32 domain = n & 1 ? ONE : TWO;

	if (guardrail_grant_fresh(domain, at, 32))
		return false;
	guardrail_check_write(domain, at, 32);
	return !guardrail_revoke(domain, at, 32);
}

void test_races(void)
{
	static const struct guardrail_field fields[] = { { 8, 8 }, { 20, 4 } };
	unsigned long p = (unsigned long)kzalloc(512, GFP_KERNEL);
	unsigned long before;

	if (!p || guardrail_prepare(p, 512)) {
		test_result("memory for the races", false);
		return;
	}
	race("halves of a slot on two CPUs", low_half, high_half, p);
	before = guardrail_violations(ONE);
	EXPECT(!guardrail_grant_fresh(ONE, p, 4));
	race("two domains in one slot on two CPUs", store_through_check, other_bytes, p);
	EXPECT(before == guardrail_violations(ONE));
	EXPECT(!guardrail_create_object(TWO, p + 64, 32, 9));
	EXPECT(!guardrail_grant_fields(TWO, p + 64, fields, ARRAY_SIZE(fields)));
	race("an object where another domain's memory comes and goes", whole_range, uses_object, p);
	EXPECT(!guardrail_grant_fresh(ONE, p, 256));
	race("objects that come and go in another domain's memory", keeps_memory, object_within, p);
	race("new parts of the table on two CPUs", new_parts, new_parts, p);
	kfree((void *)p);
}
