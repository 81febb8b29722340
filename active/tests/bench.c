// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What messages cost, beside a call and a call under a lock, in nanoseconds: lines `bench: WHAT: NUMBER ns`, once in each run.
 * All is measured while the module is loaded.
 */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/slab.h>

#include "test.h"

static unsigned int rounds = 100000;
module_param(rounds, uint, 0);
static unsigned int runs = 5;
module_param(runs, uint, 0);
MODULE_PARM_DESC(runs, "how often all is measured, by turns");

/* Interrupts for the average of a run. */
#define INTERRUPTS 50

static DEFINE_SPINLOCK(lock);
static u64 handled;

static noinline void handler(struct active_message *m)
{
	handled += m->number;
}
static void (*volatile entry)(struct active_message *m) = handler;

static void show(const char *what, u64 n, u64 ns)
{
	pr_info("bench: %s: %llu ns\n", what, div64_u64(ns, n ?: 1));
}

static void call(void)
{
	u64 begin = ktime_get_ns();
	unsigned int i;

	for (i = 0; i < rounds; i++)
		entry(&test_messages[0]);
	show("a call", rounds, ktime_get_ns() - begin);
}

static void call_locked(void)
{
	u64 begin = ktime_get_ns();
	unsigned long flags;
	unsigned int i;

	for (i = 0; i < rounds; i++) {
		spin_lock_irqsave(&lock, flags);
		entry(&test_messages[0]);
		spin_unlock_irqrestore(&lock, flags);
	}
	show("a call under a lock", rounds, ktime_get_ns() - begin);
}

/* A message, handled without an answer. */
static struct active_message plain = { .box = ETHERNET_STATISTICS };

static void one_way(struct test *t, const char *what)
{
	u64 begin = ktime_get_ns();
	unsigned int i;

	for (i = 0; i < rounds; i++)
		active_send(t->a, &plain);
	show(what, rounds, ktime_get_ns() - begin);
}

/* A message and its answer. */
static void ping_pong(struct test *t, const char *what, unsigned int n)
{
	u64 begin = ktime_get_ns();
	unsigned int i, done;

	for (i = 0; i < n; i++) {
		done = READ_ONCE(t->done);
		test_packet(t, 0);
		while (READ_ONCE(t->done) == done)
			cond_resched();
	}
	show(what, n, ktime_get_ns() - begin);
}

/* Bursts, as a network stack sends. */
static void stream(struct test *t, const char *what, unsigned int n)
{
	u64 begin = ktime_get_ns();
	unsigned int i, k, done;

	for (i = 0; i < n / 64; i++) {
		done = READ_ONCE(t->done);
		for (k = 0; k < 64; k++)
			test_packet(t, k);
		while (READ_ONCE(t->done) - done < 64)
			cond_resched();
	}
	show(what, n / 64 * 64, ktime_get_ns() - begin);
}

struct bench_sender {
	struct test *t;
	unsigned int first;
	bool by_call;
	struct completion ready, done;
};

static struct completion go;
static unsigned int each;

static int bench_thread(void *data)
{
	struct bench_sender *s = data;
	unsigned long flags;
	unsigned int i;

	complete(&s->ready);
	wait_for_completion(&go);
	for (i = 0; i < each; i++) {
		if (s->by_call) {
			spin_lock_irqsave(&lock, flags);
			entry(&test_messages[0]);
			spin_unlock_irqrestore(&lock, flags);
		} else {
			/* A message must not be sent again before it has come back. */
			while (READ_ONCE(test_messages[s->first + i % 100].flags) & 0x8000)
				cond_resched();
			test_messages[s->first + i % 100].flags = 0x8000;
			while (!test_packet(s->t, s->first + i % 100))
				cond_resched();
		}
		if (!(i % 64))
			cond_resched();
	}
	complete(&s->done);
	while (!kthread_should_stop())
		msleep(1);
	return 0;
}

static void bench_emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	if (box == ETHERNET_TX_DONE)
		WRITE_ONCE(m->flags, m->flags & ~0x8000);
}
static const struct active_role bench_role = { .protocol = ACTIVE_ETHERNET, .emitted = bench_emitted };

static void many(struct test *t, unsigned int n, bool by_call, const char *mode)
{
	struct bench_sender *s = kcalloc(n, sizeof(*s), GFP_KERNEL);
	struct task_struct *tasks[8];
	char what[64];
	unsigned int i;
	u64 begin;

	init_completion(&go);
	each = rounds / n;
	for (i = 0; i < n; i++) {
		s[i].t = t;
		s[i].first = i * 100;
		s[i].by_call = by_call;
		init_completion(&s[i].ready);
		init_completion(&s[i].done);
		tasks[i] = kthread_run(bench_thread, &s[i], "active_bench%u", i);
		wait_for_completion(&s[i].ready);
	}
	begin = ktime_get_ns();
	complete_all(&go);
	for (i = 0; i < n; i++)
		wait_for_completion(&s[i].done);
	snprintf(what, sizeof(what), "%s, %u senders", by_call ? "a call under a lock" : mode, n);
	show(what, each * n, ktime_get_ns() - begin);
	for (i = 0; i < n; i++)
		kthread_stop(tasks[i]);
	kfree(s);
}

struct bench_clock {
	struct hrtimer timer;
	struct test *t;
	u64 fired;
	struct tasklet_struct tasklet;
	bool plain;
};

/* What a driver without messages has instead. */
static void bottom_half(struct tasklet_struct *tasklet)
{
	struct bench_clock *c = container_of(tasklet, struct bench_clock, tasklet);

	c->t->received = ktime_get_ns();
	complete(&c->t->raised);
}

static enum hrtimer_restart fire(struct hrtimer *timer)
{
	struct bench_clock *c = container_of(timer, struct bench_clock, timer);

	c->fired = ktime_get_ns();
	if (c->plain)
		tasklet_schedule(&c->tasklet);
	else
		active_interrupt(c->t->a, 1);
	return HRTIMER_NORESTART;
}

static void latency(struct test *t, const char *what, bool plain)
{
	struct bench_clock *c = kzalloc(sizeof(*c), GFP_KERNEL);
	u64 sum = 0;
	unsigned int i;

	c->t = t;
	c->plain = plain;
	tasklet_setup(&c->tasklet, bottom_half);
#ifdef ACTIVE_HRTIMER_SETUP
	hrtimer_setup(&c->timer, fire, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
#else
	hrtimer_init(&c->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	c->timer.function = fire;
#endif
	for (i = 0; i < INTERRUPTS; i++) {
		reinit_completion(&t->raised);
		hrtimer_start(&c->timer, ns_to_ktime(300000), HRTIMER_MODE_REL_HARD);
		if (!wait_for_completion_timeout(&t->raised, HZ))
			pr_info("bench: an interrupt was lost\n");
		sum += t->received - c->fired;
	}
	hrtimer_cancel(&c->timer);
	tasklet_kill(&c->tasklet);
	kfree(c);
	show(what, i, sum);
}

/* @mode is `run in the sender` or `thread`. */
static void measure(struct test *t, const char *mode, bool quick)
{
	const struct active_role *before = active_role_of(t->a, ACTIVE_ETHERNET);
	char what[64];
	unsigned int n;

	/* The thread is slower by far. */
	snprintf(what, sizeof(what), "%s, ping-pong", mode);
	ping_pong(t, what, quick ? rounds : rounds / 50);
	snprintf(what, sizeof(what), "%s, bursts of 64", mode);
	stream(t, what, rounds);
	snprintf(what, sizeof(what), "%s, from an interrupt", mode);
	latency(t, what, false);
	active_play(t->a, &bench_role, t);
	for (n = 1; n <= 8; n *= 2)
		many(t, n, false, mode);
	active_play(t->a, before, t);
}

static void measure_all(struct test *t)
{
	unsigned int n;

	call();
	call_locked();
	one_way(t, "run in the sender, a message");
	latency(t, "a tasklet, from an interrupt", true);
	for (n = 1; n <= 8; n *= 2)
		many(t, n, true, "");
	measure(t, "run in the sender", true);
	active_thread_only(t->a, true);
	measure(t, "thread", false);
	active_thread_only(t->a, false);
}

static int __init bench_init(void)
{
	struct test *t = test_make("bench");
	unsigned int run;

	if (!t || test_open(t))
		return -EIO;
	t->noting = false;
	for (run = 0; run < runs; run++)
		measure_all(t);
	if (test_end(t))
		pr_info("bench: the device did not end\n");
	pr_info("bench: done\n");
	return 0;
}

static void __exit bench_exit(void)
{
}

module_init(bench_init);
module_exit(bench_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("What messages of active drivers cost");
