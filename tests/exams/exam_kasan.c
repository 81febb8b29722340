// SPDX-License-Identifier: GPL-2.0-or-later
/* KASAN's suite. */
#include "exam.h"
#include "kasan_test.c"
