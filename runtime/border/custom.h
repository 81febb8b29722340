/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the functions behind the annotations' "do" are written with. */
#ifndef GUARDRAIL_OBJECTS_H
#define GUARDRAIL_OBJECTS_H

#include "border/action.h"

/* Kinds of allocations and types of objects that annotations name (crates/kernel/src/isolation.rs). */
#define KIND_SLAB (1U << 0)
#define KIND_VMALLOC (1U << 1)
#define KIND_PAGE (1U << 2)
#define KIND_ANY_PERCPU (1U << 3)
#define KIND_DMA (1U << 4)
#define KIND_IO (1U << 5)
#define KIND_MANAGED (1U << 6)
#define KIND_FRAG (1U << 7)
#define TYPE_NETDEV (1U << 8)
#define TYPE_NAPI (1U << 9)
#define TYPE_TIMER (1U << 10)
#define TYPE_WORK (1U << 11)
#define TYPE_SKB GUARDRAIL_TYPE_SKB
#define TYPE_SCSI_CMND (1U << 13)
#define KIND_HOSTDATA (1U << 14)
#define TYPE_MISCDEVICE (1U << 15)
#define TYPE_RCU_HEAD (1U << 16)

/* Kinds of allocations that annotations do not name; theirs are single bits below this. */
#define KIND_OWN (1U << 31)
#define KIND_PRIVATE (KIND_OWN | 1)	/* memory that comes with an object of the kernel */
#define KIND_ELEMENT (KIND_OWN | 2)	/* of a memory pool */
#define KIND_PAGES (KIND_OWN | 3)
#define KIND_PERCPU (KIND_OWN | 5)
#define KIND_LENT (KIND_OWN | 4)	/* what an entry may write while it runs */

/* The pointer that an action is about; 0 where there is nothing to do. */
static inline unsigned long object_of(const struct guardrail_action *action, const struct guardrail_frame *frame)
{
	unsigned long p;

	if (!applies(action, frame) || !value_of(&action->pointer, frame, &p) || IS_ERR_VALUE(p))
		return 0;
	return p;
}

/* The action's second value, or 0. */
static inline unsigned long size_of(const struct guardrail_action *action, const struct guardrail_frame *frame)
{
	unsigned long size;

	return value_of(&action->size, frame, &size) ? size : 0;
}

/* Memory that is granted, and owned so that its size is known when it goes. */
int guardrail_give(u32 domain, unsigned long p, unsigned long size, u32 kind);
/* Takes it back; false where there is none of this kind. */
bool guardrail_take(u32 domain, unsigned long p, u32 kind);
/* Memory that an entry may write while it runs, unless the domain may anyway. */
int guardrail_lend(u32 domain, unsigned long p, unsigned long size);

/* What the object was made of is the driver's to write again; 0 as well where there is none. */
int guardrail_object_over(u32 domain, unsigned long p, unsigned long size, u32 type);

/* True for the work of struct delayed_work, behind which is its timer; behind other work may be anything, or nothing. */
bool guardrail_is_delayed(struct work_struct *work);

/* True for the head of what was to be done after a grace period, and has begun. */
bool guardrail_rcu_is_over(unsigned long head);

/* A function that annotations name. */
#define GUARDRAIL_CUSTOM(name)                                                                        \
	int guardrail_custom_##name(const struct guardrail_action *action, struct guardrail_frame *frame); \
	EXPORT_SYMBOL_GPL(guardrail_custom_##name);                                                   \
	int guardrail_custom_##name(const struct guardrail_action *action, struct guardrail_frame *frame)

#endif /* GUARDRAIL_OBJECTS_H */
