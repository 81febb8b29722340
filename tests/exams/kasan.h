/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What KASAN's suite needs of mm/kasan/kasan.h: the generic mode's names, which report nothing. With EXAM_TAGS
 * it is the mode that tags pointers, for the cases that the generic mode skips.
 */
#ifndef EXAM_KASAN_H
#define EXAM_KASAN_H

#include "exam.h"

#define KASAN_GRANULE_SIZE		8UL
#define KASAN_TAG_KERNEL		0xFF
#define KASAN_TAG_MIN			0xF0

/* Only the suite sees these: the kernel's headers are included before. */
#ifdef EXAM_TAGS
#define CONFIG_KASAN_SW_TAGS		1
#else
#define CONFIG_KASAN_GENERIC		1
#endif
#define CONFIG_KASAN_STACK		1
#define CONFIG_KASAN_VMALLOC		1
#define CONFIG_KASAN_KUNIT_TEST_MODULE	1
/* Needed by cases of which GCC's KASAN misses the fault; Guardrail needs no compiler. */
#define CONFIG_CC_IS_CLANG		1
/* KASAN's copies of the string functions are left out with this option. */
#undef CONFIG_AMD_MEM_ENCRYPT

/* What the suite remembers of KASAN's reports. */
struct kunit_kasan_status {
	bool report_found;
	bool sync_fault;
};

#define kasan_save_enable_multi_shot()	false
#define kasan_restore_multi_shot(x)	((void)(x))
#define kasan_enabled()			true
#define kasan_sync_fault_possible()	false
#define kasan_async_fault_possible()	false
#define kasan_force_async_fault()	do { } while (0)
#define kasan_enable_tagging()		do { } while (0)
#define get_tag(pointer)		((u8)((unsigned long)(pointer) >> 56))
#define set_tag(pointer, tag)		((void)(tag), (pointer))
#define kasan_poison(pointer, size, tag, init) do { } while (0)

#endif
