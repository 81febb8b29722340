// SPDX-License-Identifier: GPL-2.0-or-later
/* KASAN's suite in the mode that tags pointers. */
#define EXAM_TAGS
#include "exam.h"
#include "kasan_test.c"
