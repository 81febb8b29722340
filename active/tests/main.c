// SPDX-License-Identifier: GPL-2.0-or-later
/* Tests of the core, as TAP in the kernel's log. They end with the module's loading, and leave it loaded. */
#include <linux/delay.h>
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/mman.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "test.h"

static unsigned int seconds = 3;
module_param(seconds, uint, 0);
MODULE_PARM_DESC(seconds, "how long senders fight for a domain");

static bool met;
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			pr_info("guardrail_active_test: # not met at line %d: %s\n", __LINE__, #condition); \
			met = false; \
		} \
	} while (0)

static int change_thread(void *data)
{
	struct test *t = data;
	long err = test_change(t, TEST_HOLD, 0);

	while (!kthread_should_stop())
		msleep(1);
	return err;
}

/* Has the driver wait in another thread. */
static struct task_struct *hold(struct test *t)
{
	struct task_struct *task = kthread_run(change_thread, t, "active_hold");

	wait_for_completion(&t->held);
	return task;
}

static void let_go(struct test *t, struct task_struct *task)
{
	complete(&t->release);
	CHECK(kthread_stop(task) == 0);
}

/* The driver's notes from @from on are this box with numbers from 0 on. */
static bool in_order(struct test *t, unsigned int from, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		if (from + i >= t->noted || t->notes[from + i] != (ETHERNET_XMIT | i << 8))
			return false;
	return true;
}

static void order(struct test *t)
{
	struct task_struct *task = hold(t);
	unsigned int i, from = t->noted;

	for (i = 0; i < 100; i++)
		CHECK(test_packet(t, i));
	active_deliver(t->a, 5, NULL);
	CHECK(!active_deliver(t->a, 2, NULL));
	CHECK(t->noted == from);
	let_go(t, task);
	CHECK(t->notes[from] == (IRQ_RAISED | 7 << 8));
	CHECK(in_order(t, from + 1, 100));
}

static void capacity(struct test *t)
{
	struct task_struct *task = hold(t);
	struct active_message more = { .box = ETHERNET_XMIT };
	struct active_message changes[2] = { { .box = ETHERNET_TIMEOUT }, { .box = ETHERNET_TIMEOUT } };
	unsigned int i, done = t->done;

	for (i = 0; i < 1024; i++)
		CHECK(test_packet(t, i));
	CHECK(!active_send(t->a, &more));
	CHECK(active_send(t->a, &changes[0]));
	CHECK(!active_send(t->a, &changes[1]));
	let_go(t, task);
	for (i = 0; i < 1000 && t->done < done + 1024; i++)
		usleep_range(1000, 2000);
	CHECK(t->done == done + 1024);
}

static void full(struct test *t)
{
	unsigned int i, noted, done;

	CHECK(!test_change(t, TEST_FULL, 0));
	noted = t->noted;
	done = t->done;
	for (i = 0; i < 10; i++)
		CHECK(test_packet(t, i));
	CHECK(t->done == done);
	CHECK(!active_allows(t->a, ETHERNET_XMIT));
	CHECK(!test_change(t, TEST_WAKE, 0));
	CHECK(t->done == done + 10);
	CHECK(in_order(t, noted + 1, 10));
}

static void emitted_sends(struct test *t)
{
	unsigned int noted = t->noted;

	t->send_from_emitted = 50;
	CHECK(!test_change(t, TEST_NOTHING, 0));
	CHECK(!t->early);
	CHECK(in_order(t, noted + 1, 50));
}

/* A sender that can be preempted has it rung at once. */
static void doorbell(struct test *t)
{
	static struct active_message rings = { .box = ETHERNET_XMIT, .number = TEST_RINGS };
	struct task_struct *task;

	t->rung = t->rung_idle = 0;
	local_bh_disable();
	CHECK(active_send(t->a, &rings));
	CHECK(t->rung == 1 && t->rung_idle == 1);
	CHECK(test_packet(t, 1));
	CHECK(t->rung == 1);
	local_bh_enable();
	task = hold(t);
	CHECK(active_send(t->a, &rings));
	CHECK(t->rung == 1);
	let_go(t, task);
	CHECK(t->rung == 2 && t->rung_idle == 1);
}

static void closed(struct test *t)
{
	unsigned int refused = t->refused, noted = t->noted;

	CHECK(!test_change(t, TEST_FULL, 0));
	CHECK(test_packet(t, 0) && test_packet(t, 1));
	CHECK(!active_ask(t->a, &t->net, ETHERNET_STOP, NULL, 0));
	CHECK(t->refused == refused);
	CHECK(!test_open(t));
	CHECK(in_order(t, noted + 3, 2));
}

/* --- Contexts. */

struct sleeper {
	struct test *t;
	struct mutex *turn;
	unsigned int by_itself, times;
	long err;
};

static int sleeper_thread(void *data)
{
	struct sleeper *s = data;

	for (s->times = 0; s->times < 100; s->times++) {
		mutex_lock(s->turn);
		s->err = s->err ?: test_change(s->t, TEST_SLEEP, 0);
		s->by_itself += s->t->handler == current;
		mutex_unlock(s->turn);
		cond_resched();
	}
	while (!kthread_should_stop())
		msleep(1);
	return 0;
}

static void sleeping(struct test *t)
{
	DEFINE_MUTEX(turn);
	struct sleeper s[2] = { { .t = t, .turn = &turn }, { .t = t, .turn = &turn } };
	struct task_struct *tasks[2];
	int i;

	for (i = 0; i < 2; i++) {
		tasks[i] = kthread_create(sleeper_thread, &s[i], "active_sleeper%d", i);
		kthread_bind(tasks[i], i % num_online_cpus());
		wake_up_process(tasks[i]);
	}
	for (i = 0; i < 2000 && (s[0].times < 100 || s[1].times < 100); i++)
		msleep(10);
	for (i = 0; i < 2; i++) {
		kthread_stop(tasks[i]);
		CHECK(s[i].times == 100 && !s[i].err && s[i].by_itself == 100);
	}
}

static void atomic_sender(struct test *t)
{
	struct active_ethernet_change change = { .kind = (enum active_ethernet_change_kind)TEST_SLEEP };

	t->net.message.box = ETHERNET_CHANGE;
	t->net.message.pointer = &change;
	reinit_completion(&t->net.done);
	preempt_disable();
	CHECK(active_send(t->a, &t->net.message));
	preempt_enable();
	CHECK(wait_for_completion_timeout(&t->net.done, HZ));
	CHECK(t->handler != current);
}

static void user_copy(struct test *t)
{
	unsigned long page = vm_mmap(NULL, 0, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_PRIVATE, 0);

	CHECK(!IS_ERR_VALUE(page));
	CHECK(!test_change(t, TEST_COPY, page));
	vm_munmap(page, PAGE_SIZE);
}

struct clock {
	struct hrtimer timer;
	struct test *t;
	u64 fired;
	bool packet;
};

static enum hrtimer_restart fire(struct hrtimer *timer)
{
	struct clock *c = container_of(timer, struct clock, timer);

	c->fired = ktime_get_ns();
	if (c->packet)
		test_packet(c->t, 0);
	else
		active_interrupt(c->t->a, 1);
	return HRTIMER_NORESTART;
}

static void start_clock(struct clock *c, u64 ns)
{
#ifdef ACTIVE_HRTIMER_SETUP
	hrtimer_setup(&c->timer, fire, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
#else
	hrtimer_init(&c->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	c->timer.function = fire;
#endif
	hrtimer_start(&c->timer, ns_to_ktime(ns), HRTIMER_MODE_REL_HARD);
}

static void interrupts(struct test *t)
{
	struct clock *c = kzalloc(sizeof(*c), GFP_KERNEL);
	unsigned int done = t->done, i;

	c->t = t;
	t->in_hardirq = false;
	for (i = 0; i < 20; i++) {
		reinit_completion(&t->raised);
		start_clock(c, 500000);
		CHECK(wait_for_completion_timeout(&t->raised, HZ));
	}
	c->packet = true;
	for (i = 0; i < 20; i++) {
		start_clock(c, 500000);
		usleep_range(5000, 6000);
	}
	CHECK(t->done == done + 20);
	CHECK(!t->in_hardirq);
	hrtimer_cancel(&c->timer);
	kfree(c);
}

static void timer(struct test *t)
{
	unsigned int noted = t->noted;

	CHECK(!test_change(t, TEST_TIMER, 40));
	CHECK(t->noted == noted + 1);
	msleep(200);
	CHECK(t->noted == noted + 2 && (t->notes[noted + 1] & 255) == TIMER_EXPIRED);
	CHECK(!test_change(t, TEST_TIMER, 40) && !test_change(t, TEST_CANCEL, 0));
	msleep(200);
	CHECK(t->noted == noted + 4);
}

/* --- Senders that fight for a domain. */

#define SENDERS 4
#define EACH 200

struct sender {
	struct test *t;
	unsigned int first, sent, full;
	bool atomic;
};

/* Which packets are not on their way. */
static atomic_t free_packets[SENDERS * EACH];
/* The last number that came from each sender, and how many came out of turn. */
static unsigned int last_turn[SENDERS], wrong_turns;

static void torture_emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct test *t = data;
	unsigned int n, turn;

	if (box == ETHERNET_TX_DONE) {
		n = m - test_messages;
		turn = m->number;
		if (turn != last_turn[n / EACH] + 1)
			wrong_turns++;
		last_turn[n / EACH] = turn;
		t->done++;
		atomic_set_release(&free_packets[n], 1);
	} else if (box == ETHERNET_CHANGED) {
		active_answer(&t->net, m ? m->number : 0);
	} else if (box == ETHERNET_UNREGISTER) {
		t->send_from_emitted = 0;
	}
}

static const struct active_role torture_role = { .protocol = ACTIVE_ETHERNET, .emitted = torture_emitted };

static int sender_thread(void *data)
{
	struct sender *s = data;
	unsigned int n = 0;

	while (!kthread_should_stop()) {
		unsigned int i = s->first + n % EACH, burst = 1 + get_random_u32() % 20;

		while (burst-- && atomic_cmpxchg(&free_packets[i], 1, 0) == 1) {
			test_messages[i].box = ETHERNET_XMIT;
			test_messages[i].number = s->sent + 1;
			if (s->atomic)
				local_bh_disable();
			if (!active_send(s->t->a, &test_messages[i])) {
				atomic_set(&free_packets[i], 1);
				s->full++;
			} else {
				s->sent++;
				n++;
			}
			if (s->atomic)
				local_bh_enable();
			i = s->first + n % EACH;
		}
		if (!(get_random_u32() % 8))
			active_interrupt(s->t->a, 1);
		cond_resched();
	}
	return 0;
}

static void torture(struct test *t)
{
	struct sender s[SENDERS] = {};
	struct task_struct *tasks[SENDERS];
	unsigned int i, sent = 0, done, changes = 0;
	unsigned long end = jiffies + seconds * HZ;
	const struct active_role *before = active_role_of(t->a, ACTIVE_ETHERNET);

	active_play(t->a, &torture_role, t);
	memset(last_turn, 0, sizeof(last_turn));
	wrong_turns = 0;
	done = t->done;
	for (i = 0; i < SENDERS * EACH; i++)
		atomic_set(&free_packets[i], 1);
	for (i = 0; i < SENDERS; i++) {
		s[i] = (struct sender){ .t = t, .first = i * EACH, .atomic = i & 1 };
		tasks[i] = kthread_create(sender_thread, &s[i], "active_sender%u", i);
		kthread_bind(tasks[i], i % num_online_cpus());
		wake_up_process(tasks[i]);
	}
	while (time_before(jiffies, end)) {
		CHECK(!test_change(t, changes & 1 ? TEST_SLEEP : TEST_NOTHING, 0));
		changes++;
		cond_resched();
	}
	for (i = 0; i < SENDERS; i++) {
		kthread_stop(tasks[i]);
		sent += s[i].sent;
	}
	for (i = 0; i < 100 && t->done - done < sent; i++)
		msleep(10);
	CHECK(t->done - done == sent);
	CHECK(!wrong_turns);
	CHECK(sent > 1000 && changes > 10);
	pr_info("guardrail_active_test: # %u packets from %u senders, %u requests between\n", sent, SENDERS, changes);
	active_play(t->a, before, t);
}

/* --- Violations. */

static void rules(struct test *t)
{
	struct task_struct *task;
	unsigned int deadline = active_deadline, i;

	for (i = 1; i <= 6; i++)
		CHECK(!active_violations(t->a, i));
	CHECK(!test_change(t, TEST_FORBIDDEN, 0));
	CHECK(active_violations(t->a, 1) == 2);
	active_deadline = 1;
	task = hold(t);
	CHECK(active_ask(t->a, &t->pci, ETHERNET_STATISTICS, NULL, 0) == -ETIMEDOUT && t->pci.lost);
	CHECK(active_ask(t->a, &t->pci, ETHERNET_STATISTICS, NULL, 0) == -ETIMEDOUT);
	msleep(2500);
	/* The request, and the state. */
	CHECK(active_violations(t->a, 4) == 2);
	active_deadline = deadline;
	let_go(t, task);
	t->pci.lost = false;
	CHECK(!test_change(t, TEST_NARROW, 0));
	CHECK(active_violations(t->a, 3) == 1);
	t->net.message.box = ETHERNET_RX_MODE;
	CHECK(active_send(t->a, &t->net.message));
	CHECK(!test_change(t, TEST_NOTHING, 0));
}

static void early_end(void)
{
	struct test *t = test_make("early");

	t->pci.message.box = PCI_UNPLUG;
	CHECK(active_send(t->a, &t->pci.message));
	/* What is sent to a driver that has ended comes back. */
	CHECK(test_open(t) == -ENODEV);
	CHECK(!active_wait(t->a));
	CHECK(active_violations(t->a, 5) == 2);
	active_destroy(t->a);
}

static const struct {
	const char *name;
	void (*run)(struct test *t);
} tests[] = {
	{ "messages come in order, and interrupts first", order },
	{ "messages of a state that forbids them wait", full },
	{ "what emitted() sends waits for its return", emitted_sends },
	{ "a stopped device keeps packets until it is open", closed },
	{ "two threads on two CPUs sleep on the domain's stack", sleeping },
	{ "what sleeps runs in the thread if the sender may not", atomic_sender },
	{ "a copy from the domain's stack to user space is let through", user_copy },
	{ "interrupts run the driver in a softirq", interrupts },
	{ "the timer expires, or is canceled", timer },
	{ "senders on all CPUs lose nothing and keep their order", torture },
	{ "boxes hold as much as they are to", capacity },
	{ "a doorbell is rung when the domain has been left", doorbell },
};

static unsigned int number, failed;

static void report(const char *name)
{
	number++;
	failed += !met;
	pr_info("guardrail_active_test: %s %u - %s\n", met ? "ok" : "not ok", number, name);
}

static char *fault;
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "instead of the tests, what a driver does: warn or overflow");

/* The kernel complains, or dies. */
static noinline int do_fault(struct test *t)
{
	if (test_open(t))
		return -EIO;
	test_change(t, strcmp(fault, "overflow") ? TEST_WARN : TEST_OVERFLOW, 200);
	return test_end(t);
}

static int __init test_init(void)
{
	struct test *t = test_make("test");
	unsigned int i;

	if (!t)
		return -ENOMEM;
	if (fault)
		return do_fault(t);
	pr_info("guardrail_active_test: 1..%zu\n", ARRAY_SIZE(tests) + 4);
	met = true;
	CHECK(!test_open(t));
	report("a device is opened");
	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		met = true;
		t->noted = 0;
		tests[i].run(t);
		report(tests[i].name);
	}
	met = true;
	CHECK(!test_end(t));
	report("it is removed");
	met = true;
	t = test_make("rules");
	CHECK(t && !test_open(t));
	rules(t);
	CHECK(!test_end(t));
	report("violations of rules 1, 3 and 4 are seen");
	met = true;
	early_end();
	report("an end in the wrong state is seen");
	pr_info("guardrail_active_test: %u failed\n", failed);
	return 0;
}

static void __exit test_exit(void)
{
}

module_init(test_init);
module_exit(test_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Tests of the core of active drivers");
