/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Undoes what a dead domain has registered with the kernel, by the functions that annotations name. */
#ifndef GUARDRAIL_RECOVERY_UNDO_H
#define GUARDRAIL_RECOVERY_UNDO_H

#include "base/kernel.h"

/**
 * guardrail_undo() - Undo the registrations of a domain, the latest first.
 * @domain: The domain, which is dead: what the kernel calls of it meanwhile is refused.
 *
 * Each is undone by a thread of its own. One that does not end in time is reported.
 *
 * Context: Process, with teardown_lock held.
 * Return: False where one did not end, so that the kernel continues to use what was registered. Nothing after it is undone.
 */
bool guardrail_undo(u32 domain);

#endif /* GUARDRAIL_RECOVERY_UNDO_H */
