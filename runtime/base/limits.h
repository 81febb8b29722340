/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Limits of the runtime: each that is reached is reported once, and counted. */
#ifndef GUARDRAIL_BASE_LIMITS_H
#define GUARDRAIL_BASE_LIMITS_H

#include "base/kernel.h"

/**
 * enum guardrail_limit - The limits.
 * @GUARDRAIL_LIMIT_LOCKS: Locks that the entries of a task hold.
 * @GUARDRAIL_LIMIT_NOTES: Memory for the notes of tasks, which entries need.
 * @GUARDRAIL_LIMIT_FRAMES: Memory for notes of objects on stacks.
 * @GUARDRAIL_LIMIT_IRQS: Requested interrupts.
 * @GUARDRAIL_LIMIT_TASKS: Tasks with a reference count that a domain may write.
 * @GUARDRAIL_LIMIT_MODULES: Modules of a domain.
 * @GUARDRAIL_LIMIT_KEPT: Modules that are kept.
 * @GUARDRAIL_LIMIT_DEVICES: Devices of the drivers of a domain.
 * @GUARDRAIL_LIMIT_DRIVERS: PCI drivers of a domain.
 * @GUARDRAIL_LIMIT_RESTARTS: Threads that wait for a recovery, to make their call again.
 * @GUARDRAIL_LIMIT_BUFFERS: Buffers of file systems.
 * @GUARDRAIL_LIMIT_FS_TYPES: Types of file systems of a domain.
 * @GUARDRAIL_LIMIT_SITES: Places in the list of violations.
 * @GUARDRAIL_LIMIT_REGISTRATIONS: Notes of registrations.
 * @GUARDRAIL_LIMIT_RECEIVED: Pointers that a domain has received.
 * @GUARDRAIL_LIMIT_NMI: What NMIs may do.
 * @GUARDRAIL_LIMIT_CHOICES: Choices of entries that wait until their module is loaded again.
 * @GUARDRAIL_LIMITS: One more than the last.
 */
enum guardrail_limit {
	GUARDRAIL_LIMIT_LOCKS,
	GUARDRAIL_LIMIT_NOTES,
	GUARDRAIL_LIMIT_FRAMES,
	GUARDRAIL_LIMIT_IRQS,
	GUARDRAIL_LIMIT_TASKS,
	GUARDRAIL_LIMIT_MODULES,
	GUARDRAIL_LIMIT_KEPT,
	GUARDRAIL_LIMIT_DEVICES,
	GUARDRAIL_LIMIT_DRIVERS,
	GUARDRAIL_LIMIT_RESTARTS,
	GUARDRAIL_LIMIT_BUFFERS,
	GUARDRAIL_LIMIT_FS_TYPES,
	GUARDRAIL_LIMIT_SITES,
	GUARDRAIL_LIMIT_REGISTRATIONS,
	GUARDRAIL_LIMIT_RECEIVED,
	GUARDRAIL_LIMIT_NMI,
	GUARDRAIL_LIMIT_CHOICES,
	GUARDRAIL_LIMITS,
};

/**
 * guardrail_limit_reached() - Count that a limit was reached, and report the first time in the log.
 * @limit: The limit.
 *
 * Context: Any.
 */
void guardrail_limit_reached(enum guardrail_limit limit);

/**
 * guardrail_limits_show() - Print the limits that were reached.
 * @seq: Where to print.
 */
void guardrail_limits_show(struct seq_file *seq);

#endif /* GUARDRAIL_BASE_LIMITS_H */
