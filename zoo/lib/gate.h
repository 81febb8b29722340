/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the drivers share in which faults can be planted: which fault, when, and how.
 *
 * Without parameters such a driver is correct. With fault=KIND it makes one mistake, at a request that seed=N chooses. What it
 * does wrong happens before it writes the register that sends the request to the device.
 */
#ifndef ZOO_GATE_H
#define ZOO_GATE_H

#include "zoo.h"
#include <linux/hash.h>

enum gate_fault {
	GATE_NONE,
	GATE_RACE,
	GATE_OVERFLOW,
	GATE_UNINIT,
	GATE_UNINIT_DATA,
	GATE_DMA_REUSE,
	GATE_DMA_FREED,
	GATE_USE_AFTER_FREE,
	GATE_DOUBLE_UNMAP,
	GATE_OOB_QUEUE,
	GATE_STALE_LIST,
};

static const char * const gate_faults[] = {
	"none", "race", "overflow", "uninit", "uninit-data", "dma-reuse", "dma-freed", "use-after-free", "double-unmap",
	"oob-queue", "stale-list", NULL
};

static char fault[32];
module_param_string(fault, fault, sizeof(fault), 0644);
MODULE_PARM_DESC(fault, "the mistake to make");
static uint seed;
module_param(seed, uint, 0644);
MODULE_PARM_DESC(seed, "when and how to make it");
static bool planted;
module_param(planted, bool, 0444);
MODULE_PARM_DESC(planted, "it was made");

struct gate_plan {
	spinlock_t lock;
	unsigned int requests;
};

/* Part variant of a seed, below limit. */
static u32 gate_variant(unsigned int part, u32 limit)
{
	return hash_64(((u64)seed << 8) + part + 1, 32) % limit;
}

/* The mistake to make with this request: once, at a request that the seed chooses. */
static enum gate_fault gate_next(struct gate_plan *plan)
{
	enum gate_fault mistake = GATE_NONE;
	unsigned long flags;
	int found;

	/* Other contexts must be able to come. */
	if (!READ_ONCE(fault[0]) || irqs_disabled())
		return GATE_NONE;
	spin_lock_irqsave(&plan->lock, flags);
	if (!planted && ++plan->requests > 24 + gate_variant(0, 64)) {
		found = sysfs_match_string(gate_faults, fault);
		if (found > 0) {
			mistake = found;
			planted = true;
		}
	}
	spin_unlock_irqrestore(&plan->lock, flags);
	return mistake;
}

/* This request was not the right one. */
static void gate_again(struct gate_plan *plan)
{
	unsigned long flags;

	spin_lock_irqsave(&plan->lock, flags);
	planted = false;
	spin_unlock_irqrestore(&plan->lock, flags);
}

#endif
