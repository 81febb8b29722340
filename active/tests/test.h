/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The driver that the tests and the benchmark of the core use: it answers everything, and notes what it received. */
#ifndef ACTIVE_TESTS_H
#define ACTIVE_TESTS_H

#include <linux/skbuff.h>

#include "active_net.h"
#include "wrapper.h"

#define NOTES 4096

/* What the driver does on a message `change`, the kind of a struct active_ethernet_change. */
enum test_change {
	TEST_NOTHING,
	TEST_SLEEP,		/* sleeps, takes a mutex, allocates */
	TEST_HOLD,		/* waits until @release */
	TEST_FULL,		/* emits queue_stop */
	TEST_WAKE,		/* emits queue_wake */
	TEST_TIMER,		/* starts the timer, @value milliseconds */
	TEST_CANCEL,		/* cancels the timer */
	TEST_COPY,		/* copies from its stack to user space at @value */
	TEST_FORBIDDEN,		/* emits what is not allowed */
	TEST_WARN,		/* warns */
	TEST_OVERFLOW,		/* uses more stack than there is */
	TEST_NARROW,		/* waits for what may never come, though @value comes */
};

/* The number of a packet that makes the driver ring. */
#define TEST_RINGS (-1)

/**
 * struct test - The private data of the driver, and what its kernel does.
 * @a: The domain.
 * @pci: Requests of the protocol pci.
 * @net: Requests of the protocol ethernet.
 * @held: The driver waits for @release.
 * @release: Lets it continue.
 * @noting: The driver takes notes.
 * @notes: The boxes that it received, with the number of the message above bit 8.
 * @noted: How many.
 * @done: How many packets it has given back.
 * @handler: Which thread ran it last.
 * @in_hardirq: It was run in an interrupt.
 * @depth: How often emitted() was entered and not left.
 * @send_from_emitted: How many packets emitted() is to send.
 * @early: A message was received before emitted() had returned.
 * @received: When the last interrupt came to it, in ns.
 * @refused: Messages that came back.
 * @rung: How often the doorbell was rung.
 * @rung_idle: How often the domain had been left then.
 */
struct test {
	struct active *a;
	struct active_request pci, net;
	struct completion held, release, raised;
	bool noting;
	u32 notes[NOTES];
	unsigned int noted, done;
	struct task_struct *handler;
	bool in_hardirq;
	int depth;
	unsigned int send_from_emitted;
	bool early;
	u64 received;
	unsigned int refused;
	unsigned int rung, rung_idle;
};

struct test *test_make(const char *name);
int test_open(struct test *t);
long test_change(struct test *t, enum test_change kind, u64 value);
/* Closes and removes it. Return: 0 or an error. */
int test_end(struct test *t);
extern struct active_message test_messages[1100];
/* Sends packet @n. */
bool test_packet(struct test *t, unsigned int n);

#endif
