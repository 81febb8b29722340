/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Kinds of allocations and types of objects. Annotations name those of the first block by the names in
 * crates/kernel/src/isolation.rs, in this order; each has a bit of its own.
 */
#ifndef GUARDRAIL_RIGHTS_KINDS_H
#define GUARDRAIL_RIGHTS_KINDS_H

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

/*
 * Kinds that annotations do not name. KIND_PRIVATE is memory that comes with an object of the kernel, KIND_ELEMENT
 * is an element of a memory pool, KIND_LENT is what an entry may write while it runs.
 */
#define KIND_OWN (1U << 31)
#define KIND_PRIVATE (KIND_OWN | 1)
#define KIND_ELEMENT (KIND_OWN | 2)
#define KIND_PAGES (KIND_OWN | 3)
#define KIND_LENT (KIND_OWN | 4)
#define KIND_PERCPU (KIND_OWN | 5)

#endif /* GUARDRAIL_RIGHTS_KINDS_H */
