/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The memory of domains that devices see: their registers, and coherent memory for DMA. */
#ifndef GUARDRAIL_TRANSACT_DEVICE_H
#define GUARDRAIL_TRANSACT_DEVICE_H

#include "base/kernel.h"

/**
 * enum guardrail_seen - How a device sees memory.
 * @GUARDRAIL_SEEN_NOT: It does not.
 * @GUARDRAIL_SEEN_MEMORY: It reads the memory.
 * @GUARDRAIL_SEEN_REGISTERS: They are its registers, which are not read to learn what they hold.
 */
enum guardrail_seen {
	GUARDRAIL_SEEN_NOT,
	GUARDRAIL_SEEN_MEMORY,
	GUARDRAIL_SEEN_REGISTERS,
};

/**
 * guardrail_device_comes() - Note memory that a domain has got.
 * @domain: A valid domain.
 * @p: First byte.
 * @n: Number of bytes.
 * @kind: Kind of the allocation; others than those that devices see are ignored.
 *
 * Context: Any but NMI.
 */
void guardrail_device_comes(u32 domain, unsigned long p, unsigned long n, u32 kind);

/**
 * guardrail_device_goes() - Forget memory that a domain gives up.
 * @domain: A valid domain.
 * @p: First byte.
 *
 * Context: Any but NMI.
 */
void guardrail_device_goes(u32 domain, unsigned long p);

/**
 * guardrail_device_forget() - Forget all memory of a domain.
 * @domain: A valid domain.
 *
 * Context: Any but NMI.
 */
void guardrail_device_forget(u32 domain);

/**
 * guardrail_device_sees() - Test whether a device sees memory that a domain may write.
 * @domain: A valid domain.
 * @p: The address.
 *
 * Context: Any but NMI.
 * Return: How it does.
 */
enum guardrail_seen guardrail_device_sees(u32 domain, unsigned long p);

#endif /* GUARDRAIL_TRANSACT_DEVICE_H */
