// SPDX-License-Identifier: GPL-2.0-or-later
/* The role for the protocol timer. */
#include <linux/jiffies.h>

#include "domain.h"

/*
 * A timer that is being canceled on another CPU sends nothing. One that has been started again meanwhile may expire early,
 * by the old time: drivers look at their clocks.
 */
static void expired(struct timer_list *timer)
{
	struct active_domain *d = container_of(timer, struct active_domain, timer);
	unsigned long flags;
	bool armed;

	spin_lock_irqsave(&d->timer_lock, flags);
	armed = d->timer_armed;
	d->timer_armed = false;
	spin_unlock_irqrestore(&d->timer_lock, flags);
	if (armed)
		active_send(&d->a, &d->timer_message);
}

static void set(struct active_domain *d, bool armed)
{
	unsigned long flags;

	spin_lock_irqsave(&d->timer_lock, flags);
	d->timer_armed = armed;
	spin_unlock_irqrestore(&d->timer_lock, flags);
	/* What has been sent before is void. */
	active_refuse(&d->a, ACTIVE_BIT(TIMER_EXPIRED));
	active_accept(&d->a, ACTIVE_BIT(TIMER_EXPIRED));
}

static void emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct active_domain *d = active_domain(a);

	set(d, box == TIMER_START);
	if (box == TIMER_START)
		mod_timer(&d->timer, jiffies + msecs_to_jiffies(m ? m->number : 0));
	else
		active_timer_stop(d);
}

const struct active_role active_timer_role = { .protocol = ACTIVE_TIMER, .emitted = emitted };

void active_timer_init(struct active_domain *d)
{
	spin_lock_init(&d->timer_lock);
	timer_setup(&d->timer, expired, 0);
	d->timer_message.box = TIMER_EXPIRED;
}

/* Context: Any. The timer may be on its way. */
void active_timer_stop(struct active_domain *d)
{
	timer_delete(&d->timer);
}

/* Context: May sleep. Nothing is sent afterwards. */
void active_timer_end(struct active_domain *d)
{
	timer_delete_sync(&d->timer);
}
