// SPDX-License-Identifier: GPL-2.0-or-later
/* KFENCE's suite. */
#include "exam.h"
#include "kfence_test.c"
