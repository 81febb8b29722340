/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Interrupts that drivers request. */
#ifndef GUARDRAIL_CLASSES_IRQ_H
#define GUARDRAIL_CLASSES_IRQ_H

#include <linux/interrupt.h>

#include "base/kernel.h"

/**
 * guardrail_irq_again() - Undo that an entry has freed an interrupt: request it as it was requested.
 * @irq: Its number.
 * @handler: As for request_threaded_irq().
 * @thread_fn: As there.
 * @flags: As there.
 * @name: As there.
 * @dev_id: As there.
 *
 * Context: Process; that of the entry, which is being undone.
 */
void guardrail_irq_again(unsigned int irq, irq_handler_t handler, irq_handler_t thread_fn, unsigned long flags, const char *name,
			 void *dev_id);

#endif /* GUARDRAIL_CLASSES_IRQ_H */
