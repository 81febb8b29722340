/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel's headers that most files need, and the prefix of log lines. scripts/kbuild compiles the
 * kernel's headers named here once for all files.
 */
#ifndef GUARDRAIL_BASE_KERNEL_H
#define GUARDRAIL_BASE_KERNEL_H

#include <linux/kernel.h>
#include <linux/mempool.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <asm/asm.h>
#include <asm/stacktrace.h>

#include "guardrail_abi.h"

#undef pr_fmt
#define pr_fmt(fmt) "guardrail: " fmt

#endif /* GUARDRAIL_BASE_KERNEL_H */
