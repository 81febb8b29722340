/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Kinds of allocations that annotations do not name; enum guardrail_kind has the others.
 * KIND_PRIVATE is memory that belongs to an object of the kernel. KIND_ELEMENT is an element of a
 * memory pool, and KIND_LENT is memory that an entry may write while it runs.
 */
#ifndef GUARDRAIL_RIGHTS_KINDS_H
#define GUARDRAIL_RIGHTS_KINDS_H

#include "guardrail_abi.h"

#define KIND_OWN (1U << 31)
#define KIND_PRIVATE (KIND_OWN | 1)
#define KIND_ELEMENT (KIND_OWN | 2)
#define KIND_PAGES (KIND_OWN | 3)
#define KIND_LENT (KIND_OWN | 4)
#define KIND_PERCPU (KIND_OWN | 5)

#endif /* GUARDRAIL_RIGHTS_KINDS_H */
