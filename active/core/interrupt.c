// SPDX-License-Identifier: GPL-2.0-or-later
/* Interrupts become messages; and the role for the protocol irq. */
#include "domain.h"

static void kick_tasklet(struct active *a, void *data)
{
	tasklet_schedule(&active_domain(a)->tasklet);
}

void active_interrupt(struct active *a, long bits)
{
	struct active_domain *d = active_domain(a);

	atomic_long_or(bits, &d->irq_bits);
	d->kick(a, d->kick_data);
}
EXPORT_SYMBOL_GPL(active_interrupt);

void active_kick_by(struct active *a, void (*kick)(struct active *a, void *data), void *data)
{
	active_domain(a)->kick = kick;
	active_domain(a)->kick_data = data;
}
EXPORT_SYMBOL_GPL(active_kick_by);

static void deliver_directly(struct active *a, void *data)
{
	active_deliver(a, 0, NULL);
}

void active_interrupt_directly(struct active *a)
{
	active_domain(a)->in_interrupts = true;
	active_kick_by(a, deliver_directly, NULL);
}
EXPORT_SYMBOL_GPL(active_interrupt_directly);

bool active_deliver(struct active *a, long bits, const void *caller)
{
	struct active_domain *d = active_domain(a);
	struct active_message *m;

	atomic_long_or(bits, &d->irq_bits);
	if (test_and_set_bit(0, &d->irq_queued))
		return false;
	/* The driver may still read the one before. */
	m = &d->irq_messages[d->irq_turn ^= 1];
	m->box = IRQ_RAISED;
	if (!(d->known >> IRQ_RAISED & 1) || !active_send_by(d, m, caller))
		active_irq_dropped(d);
	return true;
}
EXPORT_SYMBOL_GPL(active_deliver);

/* Bits that come from now on want a message of their own. */
void active_irq_received(struct active_domain *d, struct active_message *m)
{
	clear_bit(0, &d->irq_queued);
	smp_mb__after_atomic();
	m->number = atomic_long_xchg(&d->irq_bits, 0);
}

void active_irq_dropped(struct active_domain *d)
{
	atomic_long_set(&d->irq_bits, 0);
	smp_mb__before_atomic();
	clear_bit(0, &d->irq_queued);
}

static void softly(struct tasklet_struct *tasklet)
{
	struct active_domain *d = container_of(tasklet, struct active_domain, tasklet);

	if (smp_load_acquire(&d->handed_softly)) {
		d->handed_softly = false;
		active_serve(d, NULL, ACTIVE_BY_TASKLET);
	}
	if (atomic_long_read(&d->irq_bits))
		active_deliver(&d->a, 0, NULL);
}

static void emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	switch (box) {
	case IRQ_ENABLE:
		active_accept(a, ACTIVE_BIT(IRQ_RAISED));
		break;
	case IRQ_DISABLE:
		active_refuse(a, ACTIVE_BIT(IRQ_RAISED));
		break;
	case IRQ_UNFINISHED:
		active_interrupt(a, 1L << (BITS_PER_LONG - 1));
		break;
	}
}

const struct active_role active_irq_role = { .protocol = ACTIVE_IRQ, .emitted = emitted };

void active_irq_init(struct active_domain *d)
{
	tasklet_setup(&d->tasklet, softly);
	d->kick = kick_tasklet;
}
