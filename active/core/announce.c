// SPDX-License-Identifier: GPL-2.0-or-later
/* Empty functions whose calls `guardrail check` logs; knowledge/core/locks.txt says what they stand for. */
#include <linux/preempt.h>
#include <linux/rcupdate.h>

#include "domain.h"

/* The compiler must call them although they do nothing. */
#define ANNOUNCE(what) asm volatile("" : : "r"(what) : "memory")

noinline void active_passed(const void *what)
{
	ANNOUNCE(what);
}

void active_queued(const struct active_message *m)
{
	bool sends = in_task();

	/* The thread that an interrupt has interrupted sends nothing; a domain that runs in the interrupt may. */
	if (!sends) {
		rcu_read_lock();
		sends = active_domain_at(current_stack_pointer);
		rcu_read_unlock();
	}
	if (sends)
		active_passed(m);
}

noinline void active_got(const void *what)
{
	ANNOUNCE(what);
}

noinline void active_violated(unsigned long rule, const unsigned long *stack, const char *text, const void *main)
{
	ANNOUNCE(rule);
	ANNOUNCE(stack);
	ANNOUNCE(text);
	ANNOUNCE(main);
}
