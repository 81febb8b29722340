// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops that a driver could have, one for each sequence of instructions that guarding adds to a driver.
 * They are compiled twice, as a driver is, under two names; the second is guarded.
 */
#define PASTE(a, b) a##b
#define JOIN(a, b) PASTE(a, b)
#define NAME(name) JOIN(PREFIX, name)
#define barrier() __asm__ volatile("" ::: "memory")

/* A descriptor as in a ring of a network card. */
struct descriptor {
	unsigned long address;
	unsigned int length;
	unsigned short flags, status;
};

/* Without these sections the rewriter would not take the file for a module. */
__attribute__((section(".modinfo"), used)) static const char info[] = "license=GPL\0name=sequences\0vermagic=none ";
__attribute__((section(".gnu.linkonce.this_module"), used)) static char this_module[64] = { 1 };

/* A loop counts how often it begins anew. */
void NAME(loop)(struct descriptor *ring, unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		barrier();
}

void NAME(store)(struct descriptor *ring, unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		ring[i].address = i;
		barrier();
	}
}

/* Four stores that share a check. */
void NAME(stores)(struct descriptor *ring, unsigned long n)
{
	for (unsigned long i = 0; i < n; i++) {
		ring[i].address = i;
		ring[i].length = 64;
		ring[i].flags = 1;
		ring[i].status = 0;
		barrier();
	}
}

/* A store at which flags are needed, so that its check keeps them. */
void NAME(flags)(struct descriptor *ring, unsigned long n)
{
	unsigned long sum = 0;

	for (unsigned long i = 0; i < n; i++)
		__asm__ volatile("add %2, %0; mov %0, %1; adc $0, %0" : "+r"(sum), "=m"(ring[i].address) : "r"(i) : "cc");
}

/* A bit by its number, as __set_bit() does it. */
void NAME(bit)(struct descriptor *ring, unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		__asm__ volatile("bts %1, %0" : "+m"(*(unsigned long *)ring) : "r"(i * 128) : "cc", "memory");
}

void NAME(call)(void (*function)(unsigned long), unsigned long n)
{
	for (unsigned long i = 0; i < n; i++)
		function(i);
}
