/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Undoing what the log of a transaction says. */
#ifndef GUARDRAIL_TRANSACT_UNDO_H
#define GUARDRAIL_TRANSACT_UNDO_H

#include "transact/transaction.h"

/**
 * guardrail_undo_look() - Find out whether a store went to memory that the device sees.
 * @tx: The transaction; its @touched is set then.
 *
 * Context: Any but NMI.
 */
void guardrail_undo_look(struct guardrail_transaction *tx);

/**
 * guardrail_undo_stores() - Undo the stores of a transaction, the latest first.
 * @tx: The transaction.
 *
 * Context: Any but NMI; the locks that the transaction holds are still held.
 */
void guardrail_undo_stores(struct guardrail_transaction *tx);

/**
 * guardrail_undo_calls() - Undo the calls of a transaction, the latest first.
 * @tx: The transaction, which is over.
 *
 * Context: That in which its entry began.
 */
void guardrail_undo_calls(struct guardrail_transaction *tx);

#endif /* GUARDRAIL_TRANSACT_UNDO_H */
