/* SPDX-License-Identifier: GPL-2.0-or-later */
/* System calls that are restarted when a domain has recovered, so that their callers see no error. */
#ifndef GUARDRAIL_RECOVERY_RESTART_H
#define GUARDRAIL_RECOVERY_RESTART_H

#include "base/kernel.h"

/**
 * guardrail_restart() - Restart the system call of the current thread after a recovery.
 * @domain: Domain that the call needs.
 * @ended: An entry of the call was ended; otherwise one was refused.
 *
 * Outside of system calls it does nothing.
 *
 * Context: Any but NMI.
 */
void guardrail_restart(u32 domain, bool ended);

/**
 * guardrail_restart_dead() - Restart a call that met an object without a driver.
 *
 * Context: Any but NMI.
 */
void guardrail_restart_dead(void);

/**
 * guardrail_restarts_begin() - Hold failed calls of a domain from now on.
 * @domain: Domain that is about to be killed.
 *
 * Context: Any but NMI.
 */
void guardrail_restarts_begin(u32 domain);

/**
 * guardrail_restarts_end() - Let held calls continue.
 * @domain: Domain whose recovery is over.
 * @recovered: Restart them; otherwise they fail.
 *
 * Context: Any but NMI.
 */
void guardrail_restarts_end(u32 domain, bool recovered);

#endif /* GUARDRAIL_RECOVERY_RESTART_H */
