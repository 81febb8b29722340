/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Interrupts that drivers have requested: until a driver frees one, its handler is called with the
 * driver's argument.
 */
#ifndef GUARDRAIL_DOMAIN_INTERRUPTS_H
#define GUARDRAIL_DOMAIN_INTERRUPTS_H

#include "base/kernel.h"

struct irqaction;

/**
 * guardrail_find_action() - Look for a handler of an interrupt.
 * @irq: Number of the interrupt.
 * @wanted: Called for each handler under the interrupt's lock, with interrupts off.
 * @data: Passed to @wanted.
 *
 * Context: Any but NMI.
 * Return: True where @wanted returned true for one.
 */
bool guardrail_find_action(unsigned int irq, bool (*wanted)(const struct irqaction *action, void *data), void *data);

/**
 * guardrail_irq_note() - Note an interrupt that a domain has requested.
 * @domain: The domain.
 * @irq: Number of the interrupt.
 * @dev_id: What its handler is called with; not 0.
 *
 * Context: Any but NMI.
 */
void guardrail_irq_note(u32 domain, unsigned int irq, unsigned long dev_id);

/**
 * guardrail_irq_forget() - Forget an interrupt that a domain frees.
 * @domain: The domain.
 * @irq: Number of the interrupt.
 * @dev_id: What its handler is called with.
 *
 * Context: Any but NMI.
 */
void guardrail_irq_forget(u32 domain, unsigned int irq, unsigned long dev_id);

/**
 * guardrail_irq_take() - Forget one of the interrupts of a domain.
 * @domain: The domain.
 * @irq: Gets its number.
 * @dev_id: Gets what its handler is called with.
 *
 * Context: Any but NMI.
 * Return: False where none is noted.
 */
bool guardrail_irq_take(u32 domain, unsigned int *irq, void **dev_id);

/**
 * guardrail_irq_is() - Test for an interrupt whose handler is called with an argument.
 * @irq: Number of the interrupt.
 * @dev_id: The argument.
 *
 * Context: Any but NMI.
 * Return: True where it has such a handler.
 */
bool guardrail_irq_is(unsigned int irq, void *dev_id);

/**
 * guardrail_irqs_forget() - Forget all interrupts of a domain.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 */
void guardrail_irqs_forget(u32 domain);

#endif /* GUARDRAIL_DOMAIN_INTERRUPTS_H */
