/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores and calls of each kind that is checked, one in a function. They go to memory that the module may write or to memory
 * that it may not. The test knows the bytes of the instructions.
 */
#include <linux/cache.h>
#include <linux/init.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <linux/string.h>

#define SIZE 256

static DEFINE_PER_CPU(u64, own_counter);
static u64 own[SIZE / 8] __aligned(64);

#define KIND(name) static noinline __noclone void do_##name(void *p)

KIND(byte)
{
	asm volatile("movb $0x11, 3(%0)" : : "D"(p) : "memory");
}

KIND(word)
{
	asm volatile("movw $0x1122, 6(%0)" : : "D"(p) : "memory");
}

KIND(quad)
{
	asm volatile("movq $0x11223344, 8(%0)" : : "D"(p) : "memory");
}

/* Over the border of two slots, the second of which the module may never write in the bad twin. */
KIND(crossing)
{
	asm volatile("movl $0x55667788, 0x7e(%0)" : : "D"(p) : "memory");
}

/* The first and the last share a check; the last is the one that the bad twin may not do. */
KIND(group)
{
	asm volatile("movq $1, 0x70(%0)\n\tmovl $2, 0x78(%0)\n\tmovl $0x12345678, 0x84(%0)" : : "D"(p) : "memory");
}

KIND(clear)
{
	unsigned long n = 16;

	asm volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(0) : "memory");
}

KIND(copy)
{
	const void *from = own;
	unsigned long n = 4;

	asm volatile("rep movsq" : "+D"(p), "+S"(from), "+c"(n) : : "memory");
}

KIND(bit)
{
	unsigned long n = 77;

	asm volatile("lock btsq %1, (%0)" : : "D"(p), "S"(n) : "memory", "cc");
}

KIND(bit_below)
{
	int n = -5;

	asm volatile("btsl %1, 8(%0)" : : "D"(p), "S"(n) : "memory", "cc");
}

KIND(exchange)
{
	u32 value = 7;

	asm volatile("lock cmpxchgl %1, 4(%0)" : : "D"(p), "S"(value), "a"(0) : "memory", "cc");
}

KIND(pair)
{
	asm volatile("lock cmpxchg16b 16(%0)" : : "D"(p), "a"(0ul), "d"(0ul), "b"(0ul), "c"(0ul) : "memory", "cc");
}

KIND(flags)
{
	/* Flags and all registers are needed over the store. */
	asm volatile("cmp %0, %0\n\tmovq $0x22334455, 24(%0)\n\tje 1f\n\tud2\n1:" : : "D"(p) : "memory", "cc");
}

KIND(barrier)
{
	asm volatile("lock addl $0, (%0)" : : "D"(p) : "memory", "cc");
	this_cpu_inc(own_counter);
	preempt_disable();
	preempt_enable();
}

/* A per-CPU pointer that the module got, or one of its own. */
KIND(percpu)
{
	asm volatile("incq %%gs:(%0)" : : "D"(p) : "memory", "cc");
}

/* A function, and a place in it that nobody may call by pointer. */
void stores_function(void);
extern char stores_inside[];
asm(".pushsection .text\n\t.balign 16\n\t.globl stores_function\n\t.type stores_function, @function\n"
    "stores_function:\n\t" ASM_RET "\n\t.balign 16, 0x90\nstores_inside:\n\t" ASM_RET
    "\n\t.size stores_function, .-stores_function\n\t.popsection");

KIND(call)
{
	void (*function)(void) = p;

	OPTIMIZER_HIDE_VAR(function);
	function();
}
