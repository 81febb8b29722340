/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Events that traced modules report. guardrail_abi.h declares the functions for modules and listeners. */
#ifndef GUARDRAIL_BORDER_EVENT_H
#define GUARDRAIL_BORDER_EVENT_H

/**
 * guardrail_event_count() - Count the events of one number on all CPUs.
 * @event: A GUARDRAIL_EVENT_… number.
 *
 * Return: The count since the module was loaded.
 */
unsigned long guardrail_event_count(unsigned int event);

#endif /* GUARDRAIL_BORDER_EVENT_H */
