/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Objects that calls create or move, in the log of a transaction. */
#ifndef GUARDRAIL_BORDER_TRANSACT_H
#define GUARDRAIL_BORDER_TRANSACT_H

#include "base/kernel.h"

/**
 * guardrail_note_created() - Log an object that is about to be created.
 * @action: The action that creates it.
 * @p: Begin of the object.
 *
 * Context: Any but NMI.
 */
void guardrail_note_created(const struct guardrail_action *action, unsigned long p);

/**
 * guardrail_note_moved() - Log the state of an object that is about to have another.
 * @action: The action that moves it.
 * @p: Begin of the object.
 *
 * Context: Any but NMI.
 */
void guardrail_note_moved(const struct guardrail_action *action, unsigned long p);

#endif /* GUARDRAIL_BORDER_TRANSACT_H */
