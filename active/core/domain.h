/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A domain, inside the core.
 *
 * At any time at most one thread owns a domain. The one that replaces IDLE in the inbox owns it, and everything below `owned`
 * is the owner's alone. The owner runs the driver on the domain's stack, by active_switch(), until the driver waits for
 * what is not there; then it puts IDLE back. There are no locks, so messages can be sent from any context.
 */
#ifndef ACTIVE_CORE_DOMAIN_H
#define ACTIVE_CORE_DOMAIN_H

#include <linux/completion.h>
#include <linux/interrupt.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/timer.h>

#include "protocol.h"
#include "wrapper.h"

#define ACTIVE_PARTS 8
#define ACTIVE_NAME 32
#define ACTIVE_BOXES_IN 64
#define ACTIVE_BOXES_ALL 192
/* Messages that a sender handles before the thread takes over. */
#define ACTIVE_BURST 512
/* Rules of protocols are numbered from 1 to 6. */
#define ACTIVE_RULES 7
/* In the inbox: nobody owns the domain. */
#define ACTIVE_IDLE ((struct active_message *)1UL)
/* At the lowest address of the stack. */
#define ACTIVE_CANARY 0x6163746976652121UL

/* In active_message.flags: the message is counted in @queued. */
#define ACTIVE_COUNTED 1
/* It has waited in a queue, and comes from another thread. */
#define ACTIVE_WAITED 2
/* Bytes of the text of a violation, with the zero; the knowledge about active_violated() has the same number. */
#define ACTIVE_TEXT 256

/* Who runs the driver. */
enum active_mode { ACTIVE_BY_SENDER, ACTIVE_BY_TASKLET, ACTIVE_BY_THREAD };

/**
 * struct active_part - The state of one of a domain's protocols.
 * @protocol: The protocol.
 * @role: Who takes the kernel's part.
 * @data: Handed to the role.
 * @state: The present state.
 * @mask: All boxes of messages to the driver.
 * @need: What AWAIT must wait for to wake up by this protocol; all ones where nothing is sure to come.
 * @row_in: The row of the table of transitions, so that the number of an `in` box is the index.
 * @row_out: The same for `out` boxes.
 * @since: When the driver came to owe an answer, in jiffies.
 * @late: The violation of rule 4 has been reported.
 */
struct active_part {
	const struct active_protocol *protocol;
	const struct active_role *role;
	void *data;
	u8 state;
	u64 mask, need;
	const u8 *row_in, *row_out;
	unsigned long since;
	bool late;
};

/* A queue, first in, first out. */
struct active_queue {
	struct active_message *first, **last;
};

/**
 * struct active_domain - A domain.
 * @a: What the driver sees.
 * @inbox: ACTIVE_IDLE, or the messages that were sent since the owner looked last, the latest first.
 * @queued: How many messages wait, for each box with messages to the driver.
 * @handed: The thread owns the domain.
 * @handed_softly: The tasklet owns the domain.
 * @irq_bits: Bits of interrupts that the driver has not seen.
 * @irq_queued: Bit 0: a message of an interrupt has not been received.
 * @wait: Boxes that the driver waits for.
 * @ready: Those of them whose messages can be received now.
 * @enabled: Boxes whose messages the protocols allow.
 * @refused: Boxes that are closed.
 * @pending: Boxes with messages in @queues.
 * @counts_pending: How many.
 * @checked: What AWAIT waited for when rule 3 was checked last.
 * @changed: A protocol has changed its state since.
 * @queues: Messages for the head of the queue, and others.
 * @inside: The driver's stack pointer while it does not run.
 * @outside: The owner's while the driver runs.
 * @mode: Who runs the driver.
 * @caller: For active_caller().
 * @doorbell: Called with @doorbell_data when the domain has been left. NULL if there is nothing to ring.
 * @burst: How many messages were received since it runs there.
 * @ended: Main has returned.
 */
struct active_domain {
	struct active a;
	struct active_message *inbox ____cacheline_aligned;
	bool handed, handed_softly;
	atomic_long_t irq_bits;
	unsigned long irq_queued;
	atomic_t queued[ACTIVE_BOXES_IN];

	/* owned */
	u64 wait ____cacheline_aligned;
	u64 ready, enabled, refused, pending, checked;
	bool changed, ended;
	enum active_mode mode;
	unsigned int burst;
	struct active_queue queues[2];
	void *inside, *outside;
	const void *caller;
	void (*doorbell)(void *data);
	void *doorbell_data;
	u16 counts_pending[ACTIVE_BOXES_IN];
	struct active_part parts[ACTIVE_PARTS];
	u64 counts[ACTIVE_BOXES_ALL];
	u64 runs[3];
	struct active_message irq_messages[2], timer_message;
	unsigned int irq_turn;

	/* Set when the domain is made. */
	u64 sleeping ____cacheline_aligned;
	u64 heads, known;
	bool thread_only;
	u16 room[ACTIVE_BOXES_IN];
	u8 part_of[ACTIVE_BOXES_ALL];
	unsigned int part_count;
	struct active_part *by_protocol[ACTIVE_PROTOCOLS];
	void (*main)(struct active *a);
	void (*kick)(struct active *a, void *data);
	void *kick_data;
	struct module *owner;
	unsigned long *stack;
	struct task_struct *thread;
	struct tasklet_struct tasklet;
	struct completion done;
	bool started, own, in_interrupts;
	char name[ACTIVE_NAME];

	/* Monitor and timer. */
	struct list_head all;
	struct dentry *file;
	atomic_t violations[ACTIVE_RULES];
	atomic_t printed;
	struct timer_list timer;
	spinlock_t timer_lock;
	bool timer_armed;
};

static inline struct active_domain *active_domain(struct active *a)
{
	return container_of(a, struct active_domain, a);
}

/* switch.S: leaves the stack, whose pointer it stores, for another one. */
void active_switch(void **save, void *to);
void active_entry(void);

/* stack.c */

/* A stack of THREAD_SIZE zeroed bytes that is aligned to that, or NULL. The page below it is not mapped. Freed by vfree(). */
unsigned long *active_stack_alloc(void);
int active_traces_start(void);
void active_traces_stop(void);

/* announce.c */

/**
 * active_passed() - Announces that what this thread has done happens before what follows active_got() of the same.
 * @what: A message or request, which is about to be handed to another thread.
 */
void active_passed(const void *what);
void active_got(const void *what);
/* The same for a message that is about to wait in a queue. Context: Any. */
void active_queued(const struct active_message *m);

/**
 * active_violated() - Announces a violation.
 * @rule: The rule, 1 to 6.
 * @stack: The lowest address of the domain's stack.
 * @text: The message, and after a line feed the states of all protocols; ACTIVE_TEXT bytes can be read.
 * @main: The driver's main function.
 */
void active_violated(unsigned long rule, const unsigned long *stack, const char *text, const void *main);

/* monitor.c */

__printf(3, 4) void active_report(struct active_domain *d, unsigned int rule, const char *format, ...);
void active_moved(struct active_domain *d, struct active_part *part, u8 state);
void active_forbidden(struct active_domain *d, struct active_part *part, unsigned int box);
void active_check_wait(struct active_domain *d);
void active_check_end(struct active_domain *d);
/* The domain whose stack, or the page below it, has an address; or NULL. Context: RCU read section. */
struct active_domain *active_domain_at(unsigned long sp);
void active_monitor_add(struct active_domain *d);
void active_monitor_remove(struct active_domain *d);
int active_monitor_start(void);
void active_monitor_stop(void);
const char *active_box_name(struct active_domain *d, unsigned int box);

/* timer.c, interrupt.c: the roles of the core. */
extern const struct active_role active_timer_role, active_irq_role;
void active_timer_init(struct active_domain *d);
void active_timer_stop(struct active_domain *d);
void active_timer_end(struct active_domain *d);
void active_irq_init(struct active_domain *d);
void active_irq_received(struct active_domain *d, struct active_message *m);
void active_irq_dropped(struct active_domain *d);

/* send.c */
void active_serve(struct active_domain *d, struct active_message *m, enum active_mode mode);
bool active_send_by(struct active_domain *d, struct active_message *m, const void *caller);

/* Takes a step of a protocol. Returns false if it does not allow the message. */
static inline bool active_step(struct active_domain *d, struct active_part *part, u8 next)
{
	if (likely(next == part->state))
		return true;
	if (unlikely(next == ACTIVE_NOWHERE))
		return false;
	active_moved(d, part, next);
	return true;
}

#endif
