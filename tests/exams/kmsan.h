/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What KMSAN's suite needs of mm/kmsan/kmsan.h. To check memory is to decide by each of its bytes, which is a fault
 * where a byte was not written.
 */
#ifndef EXAM_KMSAN_H
#define EXAM_KMSAN_H

#include "exam.h"

#define KMSAN_MAX_ORIGIN_DEPTH		7

static __always_inline void exam_check_memory(const volatile unsigned char *at, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		if (at[i])
			exam_sink = i;
}

#define kmsan_check_memory(at, size)	exam_check_memory((const volatile unsigned char *)(at), size)

#endif
