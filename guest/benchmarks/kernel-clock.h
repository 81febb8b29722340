/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the guest's own benchmarks share: the clock around what is timed, and how they fail. */
#ifndef KERNEL_CLOCK_H
#define KERNEL_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The benchmark that runs. */
static const char *benchmark;
static uint64_t began, ended;

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", benchmark, what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000u + time.tv_nsec;
}

static void begin(void)
{
	began = now();
}

static void end(void)
{
	ended = now();
}

/* What `measure` (bench-kernel.sh) reads. */
static void print_result(long operations)
{
	printf("%s %llu %ld\n", benchmark, (unsigned long long)(ended - began), operations);
	fflush(stdout);
}

/* A number of the command line, or the end of the program. */
static long number(const char *word, long least, long most)
{
	char *rest;
	long value;

	errno = 0;
	value = strtol(word, &rest, 10);
	if (errno || *rest || rest == word || value < least || value > most) {
		fprintf(stderr, "'%s' is no number from %ld to %ld\n", word, least, most);
		exit(2);
	}
	return value;
}

#endif
