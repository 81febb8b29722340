// SPDX-License-Identifier: GPL-2.0-or-later
/* KMSAN's suite. */
#include "exam.h"
#include "kmsan_test.c"
