// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Times the loops of sequences.c in a process, on the machine's own processor: `harness RUNS MILLIONS`.
 * Prints a line for each measurement: sequence, KiB that it works on, nanoseconds of a turn without checks, and guarded.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SLOT_SHIFT 3
#define WRITE 0x11
#define CALL 0x14

/*
 * Symbols that guarded code names: the table's address less that of the first slot, and the counter of loops.
 * The counter is per CPU; here its base is 0.
 */
unsigned char *guardrail_table;
int guardrail_loops = 1 << 30;

/* No check must fail: otherwise the time is not that of a passing check. */
#define FAILS(name) void name(void) { fputs("a check failed: " #name "\n", stderr); exit(1); }
FAILS(guardrail_write_slow)
FAILS(guardrail_call_slow)
FAILS(guardrail_loop_slow)

typedef void loop(void *, unsigned long);
#define BOTH(name) extern loop stock_##name, guarded_##name;
BOTH(loop) BOTH(store) BOTH(stores) BOTH(flags) BOTH(bit) BOTH(call)

static __attribute__((noinline, aligned(16))) void callee(unsigned long i)
{
	__asm__ volatile("" : : "r"(i));
}

static double timed(loop *loop, void *what, unsigned long turns, unsigned long rounds)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (unsigned long round = 0; round < rounds; round++) {
		guardrail_loops = 1 << 30;
		loop(what, turns);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	return ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / ((double)turns * rounds);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; loop *stock, *guarded; int touches; } sequences[] = {
#define ROW(name, touches) { #name, stock_##name, guarded_##name, touches },
		ROW(loop, 0) ROW(store, 1) ROW(stores, 1) ROW(flags, 1) ROW(bit, 1) ROW(call, 0)
	};
	static const unsigned long sizes[] = { 4UL << 10, 64UL << 20 };
	int runs = argc > 1 ? atoi(argv[1]) : 1;
	unsigned long turns = (argc > 2 ? atol(argv[2]) : 1) * 1000000;

	/* Addresses of a process have 47 bits. Only pages that are accessed take memory. */
	guardrail_table = mmap(NULL, 1UL << (47 - SLOT_SHIFT), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (guardrail_table == MAP_FAILED) {
		perror("no room for a table");
		return 1;
	}
	guardrail_table[(unsigned long)callee >> SLOT_SHIFT] = CALL;
	for (unsigned int size = 0; size < sizeof(sizes) / sizeof(*sizes); size++) {
		void *ring = aligned_alloc(4096, sizes[size]);

		if (!ring)
			return 1;
		memset(ring, 0, sizes[size]);
		memset(guardrail_table + ((unsigned long)ring >> SLOT_SHIFT), WRITE, sizes[size] >> SLOT_SHIFT);
		for (int run = 0; run < runs; run++) {
			for (unsigned int i = 0; i < sizeof(sequences) / sizeof(*sequences); i++) {
				unsigned long once = sizes[size] / 16, rounds = turns / once + 1;
				void *what = sequences[i].touches ? ring : (void *)callee;
				double stock, guarded;

				/* A sequence that accesses no memory costs the same for all sizes. */
				if (size && !sequences[i].touches)
					continue;
				stock = timed(sequences[i].stock, what, once, rounds);
				guarded = timed(sequences[i].guarded, what, once, rounds);
				printf("%s %lu %.4f %.4f\n", sequences[i].name, sizes[size] >> 10, stock, guarded);
			}
		}
	}
	return 0;
}
