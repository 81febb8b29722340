/* SPDX-License-Identifier: GPL-2.0-or-later */
/* debugfs: the files in guardrail/, for people, for the command line and for tests. */
#ifndef GUARDRAIL_DEBUGFS_H
#define GUARDRAIL_DEBUGFS_H

#include <linux/init.h>

/**
 * guardrail_debugfs_init() - Make the files. Without debugfs there is nothing to read.
 */
void __init guardrail_debugfs_init(void);

/**
 * guardrail_debugfs_exit() - Remove the files.
 */
void guardrail_debugfs_exit(void);

#endif /* GUARDRAIL_DEBUGFS_H */
