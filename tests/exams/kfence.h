/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What KFENCE's suite needs of mm/kfence/kfence.h and of the slab's own header, on a kernel without KFENCE: every
 * allocation counts as one of KFENCE's, on the side of the page that the case wants.
 */
#ifndef EXAM_KFENCE_H
#define EXAM_KFENCE_H

#include "exam.h"

/* The kernel's own is in a header of mm/; the cases only ask how it numbers objects, which is answered below. */
struct slab {
	unsigned int objects;
};

static inline void *slab_address(const struct slab *slab)
{
	return NULL;
}

#include <linux/slub_def.h>

enum kfence_error_type {
	KFENCE_ERROR_OOB,
	KFENCE_ERROR_UAF,
	KFENCE_ERROR_CORRUPTION,
	KFENCE_ERROR_INVALID,
	KFENCE_ERROR_INVALID_FREE,
};

#define kfence_sample_interval		100UL
/* The suite does nothing before its cases where there is no pool. */
#define __kfence_pool			exam_kfence_pool
static char exam_kfence_pool[32];

/* The parameter of test_alloc() hides this one. */
static const int policy __maybe_unused;
#undef is_kfence_address
#define is_kfence_address(pointer)	(policy != ALLOCATE_NONE)
#undef PAGE_ALIGNED
#define PAGE_ALIGNED(pointer)		(policy == ALLOCATE_LEFT)
#define virt_to_slab(pointer)		NULL
#define obj_to_index(cache, slab, pointer) 0U
#define objs_per_slab(cache, slab)	1

/* Whether freed memory is wiped is the allocator's affair; the case's fault is the read. */
#define CONFIG_INIT_ON_FREE_DEFAULT_ON	1
#undef CONFIG_KFENCE_NUM_OBJECTS
#define CONFIG_KFENCE_NUM_OBJECTS	255

#endif
