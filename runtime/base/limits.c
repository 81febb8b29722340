// SPDX-License-Identifier: GPL-2.0-or-later
/* Limits of the runtime; base/limits.h describes them. */
#include <linux/atomic.h>

#include "base/limits.h"

/* What each limit is, and what follows where it is reached. */
static const char *const texts[GUARDRAIL_LIMITS] = {
	[GUARDRAIL_LIMIT_LOCKS] = "a task has too many locks in guarded modules; the others stay taken where its entry is ended",
	[GUARDRAIL_LIMIT_NOTES] = "no memory for the note of a task; its entry was refused",
	[GUARDRAIL_LIMIT_FRAMES] = "no memory for the note of an object on a stack; it is not known where its function returns",
	[GUARDRAIL_LIMIT_IRQS] = "too many interrupts are requested; what the handlers of the others get may be freed before them",
	[GUARDRAIL_LIMIT_TASKS] = "too many tasks have a count of references that a domain may write; the oldest became read-only",
	[GUARDRAIL_LIMIT_MODULES] = "a domain has too many modules; a recovery leaves the others as they are",
	[GUARDRAIL_LIMIT_KEPT] = "too many dead modules would have to be kept; the domain stays dead",
	[GUARDRAIL_LIMIT_DEVICES] = "a domain drives too many devices; the others are not reset",
	[GUARDRAIL_LIMIT_DRIVERS] = "a domain has too many PCI drivers; the others stay registered",
	[GUARDRAIL_LIMIT_RESTARTS] = "too many threads wait for a recovery; the calls of the others fail",
	[GUARDRAIL_LIMIT_BUFFERS] = "too many buffers of file systems are in use; the others are writable until their first release",
	[GUARDRAIL_LIMIT_FS_TYPES] = "a domain has too many types of file systems; the others do not stay without their driver",
	[GUARDRAIL_LIMIT_SITES] = "too many places violated something; the others are counted together",
	[GUARDRAIL_LIMIT_REGISTRATIONS] = "too many registrations are noted, or there is no memory; the others stay when their domain dies",
	[GUARDRAIL_LIMIT_RECEIVED] = "a domain has received too many pointers; it may not pass back one that another replaced",
	[GUARDRAIL_LIMIT_NMI] = "code of a guarded module was called in an NMI, which is refused or not checked",
	[GUARDRAIL_LIMIT_CHOICES] = "too many choices of transactions wait for their modules, or there is no memory; the others are forgotten",
};

static atomic_long_t reached[GUARDRAIL_LIMITS];

void guardrail_limit_reached(enum guardrail_limit limit)
{
	if (atomic_long_inc_return(&reached[limit]) == 1)
		pr_warn("limit reached: %s\n", texts[limit]);
}

void guardrail_limits_show(struct seq_file *seq)
{
	int i;

	for (i = 0; i < GUARDRAIL_LIMITS; i++)
		if (atomic_long_read(&reached[i]))
			seq_printf(seq, "limit reached %lu times: %s\n", atomic_long_read(&reached[i]), texts[i]);
}
