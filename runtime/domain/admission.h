/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Only modules that were certified come in: the SHA-256 of a module's file must stand in the firmware file
 * guardrail/NAME.sha256, which guardrail guard writes beside each module that it has certified.
 */
#ifndef GUARDRAIL_DOMAIN_ADMISSION_H
#define GUARDRAIL_DOMAIN_ADMISSION_H

#include "base/kernel.h"

/**
 * guardrail_admission_init() - Begin to look at the files of modules that the kernel reads.
 *
 * Context: May sleep.
 * Return: 0, or an error after the log says why files cannot be looked at.
 */
int __init guardrail_admission_init(void);

/**
 * guardrail_admission_exit() - End it.
 *
 * Context: May sleep.
 */
void guardrail_admission_exit(void);

/**
 * guardrail_admit() - Decide whether a module may come in.
 * @module: A module that the current thread is loading.
 *
 * Context: May sleep.
 * Return: 0, or -EKEYREJECTED after the log says what is wrong and what to do.
 */
int guardrail_admit(const struct module *module);

#endif /* GUARDRAIL_DOMAIN_ADMISSION_H */
