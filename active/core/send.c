// SPDX-License-Identifier: GPL-2.0-or-later
/* Queues of a domain, and who runs its driver; domain.h says who owns what. */
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>

#include "domain.h"

static void refuse(struct active_domain *d, struct active_message *m)
{
	const struct active_part *part = &d->parts[d->part_of[m->box]];

	if (m->box == IRQ_RAISED)
		active_irq_dropped(d);
	if (part->role && part->role->refused)
		part->role->refused(&d->a, m, part->data);
}

/* Forgets that a message counts as one of its box. */
static void uncount(struct active_domain *d, struct active_message *m)
{
	if (m->flags & ACTIVE_COUNTED) {
		m->flags &= ~ACTIVE_COUNTED;
		atomic_dec(&d->queued[m->box]);
	}
}

static void enqueue(struct active_domain *d, struct active_message *m)
{
	struct active_queue *queue = &d->queues[d->heads >> m->box & 1 ? 0 : 1];

	if (unlikely(d->refused >> m->box & 1)) {
		uncount(d, m);
		refuse(d, m);
		return;
	}
	m->next = NULL;
	*queue->last = m;
	queue->last = &m->next;
	d->counts_pending[m->box]++;
	d->pending |= ACTIVE_BIT(m->box);
}

/* Takes from the inbox what was sent since, in the order in which it was sent. */
static void drain(struct active_domain *d)
{
	struct active_message *m, *next, *first = NULL;

	for (m = xchg(&d->inbox, NULL); m; m = next) {
		next = m->next;
		m->next = first;
		first = m;
	}
	for (m = first; m; m = next) {
		next = m->next;
		enqueue(d, m);
	}
}

/* Takes a message out of a queue; @at is what points to it. */
static struct active_message *unlink(struct active_domain *d, struct active_queue *queue, struct active_message **at)
{
	struct active_message *m = *at;

	*at = m->next;
	if (queue->last == &m->next)
		queue->last = at;
	if (!--d->counts_pending[m->box])
		d->pending &= ~ACTIVE_BIT(m->box);
	uncount(d, m);
	m->flags |= ACTIVE_WAITED;
	return m;
}

/* The first message that the driver waits for; there is one. */
static struct active_message **find(struct active_domain *d, struct active_queue **queue)
{
	struct active_message **at;

	for (*queue = d->queues;; ++*queue)
		for (at = &(*queue)->first; *at; at = &(*at)->next)
			if (d->ready >> (*at)->box & 1)
				return at;
}

/* True if next_message() should look. */
static __always_inline bool has_message(struct active_domain *d)
{
	return d->pending & d->ready || READ_ONCE(d->inbox);
}

/*
 * The next message that can be received, taken out of its queue; NULL if no message waits, or if it cannot be handled here.
 * That a message sleeps is only sure to do no harm in the thread, since a sender may hold locks that the driver needs.
 * A sender does not handle the messages of others for ever.
 */
static noinline struct active_message *next_message(struct active_domain *d)
{
	struct active_queue *queue;
	struct active_message **at;

	if (d->mode == ACTIVE_BY_THREAD)
		cond_resched();
	if (READ_ONCE(d->inbox))
		drain(d);
	if (!(d->pending & d->ready))
		return NULL;
	at = find(d, &queue);
	if (d->mode != ACTIVE_BY_THREAD && (d->sleeping >> (*at)->box & 1 || d->burst >= ACTIVE_BURST || d->thread_only))
		return NULL;
	return unlink(d, queue, at);
}

static void hand_to_thread(struct active_domain *d)
{
	smp_store_release(&d->handed, true);
	wake_up_process(d->thread);
}

/* Calls a doorbell, which sees what the driver did before it set it. */
static __always_inline void call_doorbell(struct active_domain *d, void (*doorbell)(void *data), void *data)
{
	active_got(&d->doorbell);
	doorbell(data);
}

/* Gives the domain up. Returns false if a message has come, so that the caller still owns it. */
static __always_inline bool leave(struct active_domain *d)
{
	void (*doorbell)(void *data) = d->doorbell;
	void *data = d->doorbell_data;

	/* The next owner must find neither. */
	d->caller = NULL;
	d->doorbell = NULL;
	if (unlikely(cmpxchg(&d->inbox, NULL, ACTIVE_IDLE) != NULL)) {
		d->doorbell = doorbell;
		return false;
	}
	/* Outside of the domain, which may have another owner by now. */
	if (doorbell)
		call_doorbell(d, doorbell, data);
	return true;
}

static void ring(struct active_domain *d)
{
	void (*doorbell)(void *data) = d->doorbell;

	d->doorbell = NULL;
	if (doorbell)
		call_doorbell(d, doorbell, d->doorbell_data);
}

/*
 * Runs the driver with the first message, if there is one, and then with all that have come. The caller owns the domain,
 * and gives it up, or hands it to the thread.
 */
static __always_inline void serve(struct active_domain *d, struct active_message *m, enum active_mode mode, const void *caller)
{
	d->caller = caller;
	d->mode = mode;
	d->burst = 0;
	d->runs[mode]++;
	for (;;) {
		if (m || unlikely(!d->started)) {
			d->started = true;
			d->a.message = m;
			active_switch(&d->outside, d->inside);
			if (unlikely(*d->stack != ACTIVE_CANARY))
				panic("guardrail: active %s: its stack has overflowed", d->name);
		}
		if (!(d->pending & d->ready)) {
			if (likely(leave(d)))
				return;
			d->caller = caller;
		}
		m = next_message(d);
		if (!m && d->pending & d->ready) {
			d->caller = NULL;
			ring(d);
			hand_to_thread(d);
			return;
		}
	}
}

void active_serve(struct active_domain *d, struct active_message *m, enum active_mode mode)
{
	serve(d, m, mode, NULL);
}

int active_await(struct active *a, u64 boxes)
{
	struct active_domain *d = active_domain(a);
	struct active_message *m;
	struct active_part *part;
	unsigned int box;

	d->wait = boxes;
	d->ready = boxes & d->enabled;
	if (unlikely(boxes != d->checked || d->changed))
		active_check_wait(d);
	m = has_message(d) ? next_message(d) : NULL;
	if (likely(!m)) {
		active_switch(&d->inside, d->outside);
		m = a->message;
	} else {
		a->message = m;
	}
	d->burst++;
	if (unlikely(m->flags & ACTIVE_WAITED))
		active_got(m);
	box = m->box;
	d->counts[box]++;
	part = &d->parts[d->part_of[box]];
	active_step(d, part, part->row_in[box]);
	if (unlikely(box == IRQ_RAISED))
		active_irq_received(d, m);
	return box;
}
EXPORT_SYMBOL_GPL(active_await);

void active_emit(struct active *a, unsigned int box, struct active_message *m)
{
	struct active_domain *d = active_domain(a);
	struct active_part *part;

	if (WARN_ON_ONCE(box >= ACTIVE_BOXES_ALL || d->part_of[box] >= d->part_count))
		return;
	part = &d->parts[d->part_of[box]];
	if (unlikely(!active_step(d, part, part->row_out[box]))) {
		active_forbidden(d, part, box);
		return;
	}
	d->counts[box]++;
	if (part->role)
		part->role->emitted(a, box, m, part->data);
}
EXPORT_SYMBOL_GPL(active_emit);

/* What a new stack begins with. It is left for ever when main has returned. */
asmlinkage void active_main(struct active_domain *d);
asmlinkage void active_main(struct active_domain *d)
{
	d->main(&d->a);
	active_check_end(d);
	d->wait = d->ready = 0;
	d->ended = true;
	active_refuse(&d->a, ~0ULL);
	active_passed(d);
	complete(&d->done);
	for (;;)
		active_switch(&d->inside, d->outside);
}

/* True where the caller may sleep. */
static bool may_sleep(void)
{
	return preemptible() && !rcu_preempt_depth();
}

/* True in a hard interrupt, if the driver runs in softirqs at most. */
static bool too_hard(const struct active_domain *d)
{
	return in_hardirq() && !d->in_interrupts;
}

/* The caller has become the owner of a domain whose driver cannot receive the message here. Returns false if the box is full. */
static noinline bool send_elsewhere(struct active_domain *d, struct active_message *m)
{
	bool full = atomic_inc_return(&d->queued[m->box]) > d->room[m->box];

	if (full) {
		atomic_dec(&d->queued[m->box]);
	} else {
		m->flags |= ACTIVE_COUNTED;
		active_queued(m);
		enqueue(d, m);
	}
	if (too_hard(d)) {
		smp_store_release(&d->handed_softly, true);
		tasklet_schedule(&d->tasklet);
	} else if (d->pending & d->ready) {
		hand_to_thread(d);
	} else {
		/* Others may have sent meanwhile. */
		active_serve(d, NULL, ACTIVE_BY_SENDER);
	}
	return !full;
}

/* Another thread owns the domain: leaves the message in the inbox. Becomes the owner if it is idle by now. */
static noinline int leave_message(struct active_domain *d, struct active_message *m, struct active_message *old)
{
	if (atomic_inc_return(&d->queued[m->box]) > d->room[m->box]) {
		atomic_dec(&d->queued[m->box]);
		return false;
	}
	m->flags |= ACTIVE_COUNTED;
	active_queued(m);
	for (;;) {
		if (old == ACTIVE_IDLE) {
			old = cmpxchg(&d->inbox, ACTIVE_IDLE, NULL);
			if (old != ACTIVE_IDLE)
				continue;
			uncount(d, m);
			return -EAGAIN;
		}
		m->next = old;
		if (try_cmpxchg(&d->inbox, &old, m))
			return true;
	}
}

static __always_inline bool send(struct active_domain *d, struct active_message *m, const void *caller)
{
	struct active_message *old = ACTIVE_IDLE;
	u64 bit = ACTIVE_BIT(m->box);
	int left;

	m->flags &= ~(ACTIVE_COUNTED | ACTIVE_WAITED);
	if (unlikely(!try_cmpxchg(&d->inbox, &old, NULL))) {
		left = leave_message(d, m, old);
		if (left != -EAGAIN)
			return left;
	}
	if (unlikely(!(d->ready & bit) || READ_ONCE(d->thread_only) || too_hard(d) || (d->sleeping & bit && !may_sleep())))
		return send_elsewhere(d, m);
	serve(d, m, ACTIVE_BY_SENDER, caller);
	return true;
}

bool active_send_by(struct active_domain *d, struct active_message *m, const void *caller)
{
	return send(d, m, caller);
}

bool active_send(struct active *a, struct active_message *m)
{
	struct active_domain *d = active_domain(a);

	if (WARN_ON_ONCE(m->box >= ACTIVE_BOXES_IN || !(d->known >> m->box & 1)))
		return false;
	return send(d, m, NULL);
}
EXPORT_SYMBOL_GPL(active_send);

void active_refuse(struct active *a, u64 boxes)
{
	struct active_domain *d = active_domain(a);
	struct active_message *m, *next, *first = NULL, **last = &first, **at;
	struct active_queue *queue;

	d->refused |= boxes;
	if (READ_ONCE(d->inbox))
		drain(d);
	if (!(d->pending & boxes))
		return;
	for (queue = d->queues; queue < d->queues + ARRAY_SIZE(d->queues); queue++)
		for (at = &queue->first; *at;) {
			if (!(boxes >> (*at)->box & 1)) {
				at = &(*at)->next;
				continue;
			}
			m = unlink(d, queue, at);
			m->next = NULL;
			*last = m;
			last = &m->next;
		}
	for (m = first; m; m = next) {
		next = m->next;
		refuse(d, m);
	}
}
EXPORT_SYMBOL_GPL(active_refuse);

void active_accept(struct active *a, u64 boxes)
{
	active_domain(a)->refused &= ~boxes;
}
EXPORT_SYMBOL_GPL(active_accept);

void active_doorbell(struct active *a, void (*doorbell)(void *data), void *data)
{
	struct active_domain *d = active_domain(a);

	/* Who can be preempted might ring when the device is gone. */
	if (!preempt_count()) {
		doorbell(data);
		return;
	}
	if (d->doorbell != doorbell || d->doorbell_data != data)
		ring(d);
	d->doorbell = doorbell;
	d->doorbell_data = data;
	active_passed(&d->doorbell);
}
EXPORT_SYMBOL_GPL(active_doorbell);

const void *active_caller(struct active *a)
{
	return active_domain(a)->caller;
}
EXPORT_SYMBOL_GPL(active_caller);

bool active_allows(struct active *a, unsigned int box)
{
	return box < ACTIVE_BOXES_IN && READ_ONCE(active_domain(a)->enabled) >> box & 1;
}
EXPORT_SYMBOL_GPL(active_allows);

struct task_struct *active_current(void)
{
	return get_current();
}
EXPORT_SYMBOL_GPL(active_current);

void active_thread_only(struct active *a, bool on)
{
	WRITE_ONCE(active_domain(a)->thread_only, on);
}
EXPORT_SYMBOL_GPL(active_thread_only);
