// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Active drivers: their main function runs on a stack of its own, and goes on in any task after it has waited for a message.
 *
 * While main waits, its record is in no task's note. The frame of the call that waits keeps the record.
 */
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "base/symbols.h"
#include "border/custom.h"
#include "border/target.h"
#include "domain/code.h"
#include "domain/counts.h"
#include "domain/entry.h"
#include "domain/locks.h"
#include "domain/unwind.h"
#include "rights/kinds.h"
#include "rights/memory.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "rights/skb.h"

/**
 * struct message - struct active_message of active/include/active.h, whose core asserts that both agree.
 * @next: The next one of a queue.
 * @box: Its box.
 * @flags: The core's.
 * @pointer: A payload.
 * @number: A payload.
 */
struct message {
	struct message *next;
	u16 box, flags;
	void *pointer;
	long number;
};

/**
 * struct active - The same for struct active.
 * @message: The message that was received last.
 * @priv: The driver's own memory.
 */
struct active {
	struct message *message;
	void *priv;
};

/* Words of the call registers that the functions of the core do not use: they have at most three arguments. Rows name them. */
enum { POINTER = 3, NUMBER = 4, RECORD = 5, REST = 5 };

#define MOST_GIVEN 16

/**
 * struct given - Something that a driver may write for a while.
 * @domain: Domain of the driver; 0 for none.
 * @a: The driver's argument.
 * @p: What it may write.
 */
struct given {
	u32 domain;
	unsigned long a, p;
};
/*
 * Network devices, until main ends, and what messages lend, until the driver sends or waits. The lock protects both. It is taken
 * in any context but NMI, and nothing nests inside.
 */
static struct given devices[MOST_GIVEN], lent[MOST_GIVEN];
static DEFINE_RAW_SPINLOCK(given_lock);
/* How many of the latter there are. */
static atomic_t n_lent;

/* Notes that something is a driver's. Returns 1; 0 where that is noted already; -ENOSPC where there is no room. */
static int note(struct given *list, const struct given *new)
{
	struct given *free = NULL;
	unsigned long flags;
	bool known = false;
	unsigned int i;

	raw_spin_lock_irqsave(&given_lock, flags);
	for (i = 0; i < MOST_GIVEN; i++) {
		if (!list[i].domain)
			free = &list[i];
		if (list[i].domain == new->domain && list[i].a == new->a && list[i].p == new->p)
			known = true;
	}
	if (!known && free)
		*free = *new;
	raw_spin_unlock_irqrestore(&given_lock, flags);
	return known ? 0 : free ? 1 : -ENOSPC;
}

/* Finds what was given to a driver, and forgets it; 0 for nothing. */
static unsigned long next(struct given *list, u32 domain, unsigned long a)
{
	unsigned long flags, p = 0;
	unsigned int i;

	raw_spin_lock_irqsave(&given_lock, flags);
	for (i = 0; i < MOST_GIVEN && !p; i++)
		if (list[i].domain == domain && list[i].a == a) {
			p = list[i].p;
			list[i].domain = 0;
		}
	raw_spin_unlock_irqrestore(&given_lock, flags);
	return p;
}

/* The driver is about to answer. */
static noinline void end_loans(u32 domain, unsigned long a)
{
	unsigned long p;

	while ((p = next(lent, domain, a))) {
		guardrail_take(domain, p, KIND_LENT);
		atomic_dec(&n_lent);
	}
}

/* The driver may write so many bytes until it answers. Without room to note it, what it writes is a violation. */
static void lend(const struct given *loan, unsigned long bytes)
{
	int noted;

	if (guardrail_lend(loan->domain, loan->p, bytes))
		return;
	noted = note(lent, loan);
	if (noted > 0)
		atomic_inc(&n_lent);
	else if (noted < 0)
		guardrail_take(loan->domain, loan->p, KIND_LENT);
}

/* True for the first entry on an own stack, which can wait there. */
static bool is_main(const struct guardrail_record *record)
{
	unsigned long p = (unsigned long)record, before = (unsigned long)record->previous;
	struct stack_info info;

	return guardrail_own_stack_of(current_stack_pointer, p, &info) && (p ^ before) >= THREAD_SIZE;
}

/* Main begins: the domain's memory is the driver's. */
GUARDRAIL_CUSTOM(active_begins)
{
	struct active *a = (struct active *)object_of(action, call);

	if (!a || !is_main(container_of(call, struct guardrail_record, call)))
		return 0;
	return guardrail_give(action->domain, (unsigned long)a->priv, ksize(a->priv), KIND_PRIVATE);
}

/* Main has returned, or was ended: the core frees what the driver had. */
GUARDRAIL_CUSTOM(active_ends)
{
	struct active *a = (struct active *)object_of(action, call);
	unsigned long dev;

	if (!a || !is_main(container_of(call, struct guardrail_record, call)))
		return 0;
	guardrail_take(action->domain, (unsigned long)a->priv, KIND_PRIVATE);
	end_loans(action->domain, (unsigned long)a);
	while ((dev = next(devices, action->domain, (unsigned long)a)))
		guardrail_revoke(action->domain, dev, sizeof(struct net_device));
	return 0;
}

/* The driver gets a network device, the second value is its argument. What there is no room for is taken back at once. */
GUARDRAIL_CUSTOM(active_device)
{
	const struct given new = { .domain = action->domain, .a = size_of(action, call), .p = object_of(action, call) };

	if (new.p && note(devices, &new) < 0)
		guardrail_revoke(new.domain, new.p, sizeof(struct net_device));
	return 0;
}

/* A lock that the entry has taken, or given without having taken it; 0 for none. */
static unsigned long lock_of(const struct guardrail_record *record)
{
	const struct guardrail_record *innermost;
	struct guardrail_locks *locks;
	unsigned long flags, p = 0;
	unsigned int i;

	local_irq_save(flags);
	locks = guardrail_locks(&innermost);
	for (i = 0; locks && i < locks->n && !p; i++)
		if (locks->lock[i].record == record)
			p = locks->lock[i].p;
	local_irq_restore(flags);
	return p;
}

/* True where the entry may wait for a message of its domain; reports a violation otherwise. */
static bool may_wait(const struct guardrail_action *action, const struct guardrail_call *call, const struct guardrail_record *record)
{
	unsigned long lock;

	if (!record || record->entry->domain != action->domain || !is_main(record) || record->call.args[0] != call->args[0]) {
		guardrail_refuse(action, call, "wait for a message of", call->args[0], "no main function of it", "its main function");
		return false;
	}
	lock = lock_of(record);
	if (lock)
		guardrail_refuse(action, call, "wait for a message with a lock at", lock, "the lock", "no lock");
	return !lock;
}

/*
 * Main is about to wait. Others run on this stack only when it goes on. Where it may not wait it is ended, since the core would
 * take whatever stack this is for the domain's.
 */
GUARDRAIL_CUSTOM(active_waits)
{
	struct guardrail_record *record = guardrail_innermost();

	stop_dead(action, call);
	if (atomic_read(&n_lent))
		end_loans(action->domain, call->args[0]);
	if (may_wait(action, call, record)) {
		call->args[RECORD] = (unsigned long)record;
		guardrail_entry_detach(record);
		return 0;
	}
	guardrail_unwind(action->domain);
	call->args[RECORD] = 0;
	call->result = 0;
	return 1;
}

/* Main goes on, mostly in another task and context than it waited in. */
GUARDRAIL_CUSTOM(active_goes_on)
{
	struct guardrail_record *record = (struct guardrail_record *)call->args[RECORD];

	if (!record)
		return 0;
	guardrail_counts_stay(record);
	if (unlikely(!guardrail_entry_attach(record)))
		guardrail_end(record);
	if (unlikely(READ_ONCE(guardrail_dead_domains)))
		guardrail_crossing(action->domain, call);
	return 0;
}

/* True for a box among up to eight, which are a byte each, one more than their numbers. */
static bool is_among(unsigned long boxes, unsigned int box)
{
	for (; boxes; boxes >>= 8)
		if ((boxes & 0xff) == box + 1)
			return true;
	return false;
}

/* Begins the effects of a row: if the driver has received one of these messages, the row gets its payloads, and else none. */
GUARDRAIL_CUSTOM(active_received)
{
	const struct message *m;
	bool is = call->args[RECORD] && is_among(size_of(action, call), (u32)call->result);

	call->args[POINTER] = call->args[NUMBER] = 0;
	if (!is)
		return 0;
	m = ((const struct active *)call->args[0])->message;
	call->args[POINTER] = (unsigned long)m->pointer;
	call->args[NUMBER] = m->number;
	return 0;
}

/* A message lends memory, until the driver sends a message or waits for one. */
GUARDRAIL_CUSTOM(active_lend)
{
	const struct given loan = { .domain = action->domain, .a = call->args[0], .p = object_of(action, call) };
	unsigned long bytes = size_of(action, call);

	if (loan.p && bytes)
		lend(&loan, bytes);
	return 0;
}

/* The driver sends a message. What it hands over is for the rows of its box to judge. */
GUARDRAIL_CUSTOM(active_emits)
{
	struct message *m = (struct message *)object_of(action, call);
	void *pointer = NULL;

	stop_dead(action, call);
	if (atomic_read(&n_lent))
		end_loans(action->domain, call->args[0]);
	if (m && get_kernel_nofault(pointer, &m->pointer))
		guardrail_refuse(action, call, "message at", (unsigned long)m, "no memory", "a message");
	call->args[REST] = (unsigned long)pointer;
	return 0;
}

/* As active_received(). The pointer is known to a row then. */
GUARDRAIL_CUSTOM(active_emitted)
{
	const struct message *m = (const struct message *)call->args[2];
	long number;

	call->args[POINTER] = call->args[NUMBER] = 0;
	if (!m || !is_among(size_of(action, call), (u32)call->args[1]))
		return 0;
	call->args[POINTER] = call->args[REST];
	call->args[REST] = 0;
	if (!get_kernel_nofault(number, &m->number))
		call->args[NUMBER] = number;
	return 0;
}

/* What is left is a pointer that no row knows, and the wrapper might write there. */
GUARDRAIL_CUSTOM(active_unknown)
{
	unsigned long p = object_of(action, call);

	if (p)
		guardrail_refuse(action, call, "message with", p, "no row on what it hands over", "a message without a pointer");
	return 0;
}

/* The driver hands a packet to the kernel, the value, by the packet's own message. */
GUARDRAIL_CUSTOM(active_packet)
{
	struct message *m = (struct message *)object_of(action, call);
	struct sk_buff *skb = (struct sk_buff *)size_of(action, call);

	if (!m || !skb || (m == (struct message *)skb->cb && guardrail_is_skb(action->domain, (unsigned long)skb)))
		return 0;
	call->args[POINTER] = 0;
	if (m == (struct message *)skb->cb)
		guardrail_refuse_object(action, call, (unsigned long)skb, GUARDRAIL_TYPE_SKB, GUARDRAIL_ANY_STATE);
	else
		guardrail_refuse(action, call, "message of another at", (unsigned long)skb, "no packet that has the message", "a packet with it");
	return 0;
}

/**
 * struct stream - The same for struct active_stream, as far as it is of use here.
 * @main: The main function of the stream's domain.
 * @rest: The rest.
 */
struct stream {
	unsigned long main, rest[7];
};

/* The driver names the main functions of domains for the streams of a card. A row has looked at the first. */
GUARDRAIL_CUSTOM(active_streams)
{
	const struct stream *streams = (const struct stream *)object_of(action, call);
	unsigned long i, count = size_of(action, call), first, main;

	if (!streams || get_kernel_nofault(first, &streams->main))
		return 0;
	for (i = 1; i < count; i++)
		if (!get_kernel_nofault(main, &streams[i].main))
			guardrail_require_call(action, call, "stream with a function at", main, guardrail_type_at(first));
	return 0;
}
