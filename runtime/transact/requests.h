/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests that a transaction hands to a device, and that the kernel gives back to the driver when they are done. While one is
 * under way, the device uses memory that would be undone, and the driver's function that gets it back may use frames that end.
 * So it is ended first where the code may sleep, and elsewhere the transaction cannot be undone.
 */
#ifndef GUARDRAIL_TRANSACT_REQUESTS_H
#define GUARDRAIL_TRANSACT_REQUESTS_H

#include "transact/transaction.h"

/**
 * struct guardrail_requests - A kind of requests.
 * @by: The kernel's function that hands them to a device.
 * @is_under_way: True until the driver's function has returned that gets it back. In any context but NMI.
 * @end: End it, and wait until that function has returned. May sleep.
 * @drop: The transaction is over, and the request may go. In any context but NMI.
 */
struct guardrail_requests {
	const char *by;
	bool (*is_under_way)(unsigned long request);
	void (*end)(unsigned long request);
	void (*drop)(u32 domain, unsigned long request);
};

/**
 * guardrail_requests_register() - Set what is done with requests.
 * @functions: The functions, which stay.
 */
void __init guardrail_requests_register(const struct guardrail_requests *functions);

/**
 * guardrail_requests_add() - Log a request that is about to be handed over.
 * @tx: The transaction.
 * @request: The request, which stays until it is dropped.
 *
 * Context: Any but NMI.
 * Return: False where the log has no room; then it is not dropped.
 */
bool guardrail_requests_add(struct guardrail_transaction *tx, unsigned long request);

/**
 * guardrail_requests_judge() - Note that a transaction cannot be undone here, if a request is under way that cannot be ended.
 * @tx: The transaction.
 *
 * Context: Any but NMI.
 */
void guardrail_requests_judge(struct guardrail_transaction *tx);

/**
 * guardrail_requests_end() - End all requests of a transaction.
 * @tx: The transaction; guardrail_requests_judge() was called in the same context.
 *
 * Context: Any but NMI.
 */
void guardrail_requests_end(struct guardrail_transaction *tx);

/**
 * guardrail_requests_drop() - Drop all requests of a transaction, which is over.
 * @tx: The transaction.
 *
 * Context: Any but NMI.
 */
void guardrail_requests_drop(struct guardrail_transaction *tx);

#endif /* GUARDRAIL_TRANSACT_REQUESTS_H */
