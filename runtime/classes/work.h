/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Work that drivers queue. */
#ifndef GUARDRAIL_CLASSES_WORK_H
#define GUARDRAIL_CLASSES_WORK_H

#include <linux/workqueue.h>

#include "base/kernel.h"

/**
 * guardrail_requeue() - Undo that an entry has canceled delayed work.
 * @work: The work, which the driver may have changed since. Where it is no sound work any more, nothing is done.
 *
 * Tables of transactions name this function. The work is queued on the kernel's own queue, to begin at once: the work does not
 * say how long it still had to wait.
 *
 * Context: That of the entry, which is being undone.
 */
void guardrail_requeue(struct delayed_work *work);

/**
 * guardrail_rearm() - Undo that an entry has stopped a timer.
 * @timer: The timer, which the driver may have changed since. Where it is no sound timer any more, nothing is done.
 * @expires: When it was to expire.
 *
 * Context: That of the entry, which is being undone.
 */
void guardrail_rearm(struct timer_list *timer, unsigned long expires);

#endif /* GUARDRAIL_CLASSES_WORK_H */
