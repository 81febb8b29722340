/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What guarded modules and their wrappers rely on: the table of rights, the struct that describes a guarded module,
 * and the functions of guardrail.ko. Whoever changes anything in here that code built earlier relies on raises
 * GUARDRAIL_ABI.
 *
 * The table
 *
 * Every 8 bytes (a slot) of the kernel's half of the address space have one byte in one linear table, its entry:
 *
 *	entry of the byte at p = (p >> GUARDRAIL_SLOT_SHIFT) + guardrail_table	(modulo 2^64)
 *
 * A whole entry of 0 says that no domain holds more than the right to read. Everything else is the number of a domain in the
 * upper four bits and a right in the lower four, or GUARDRAIL_CONFLICT: what the domains hold of the slot's bytes
 * stands in a side table, the conflict table.
 *
 * Memory for the table is there only where something was granted. Reading an entry elsewhere faults, and so does
 * reading "the entry" of an address outside of the kernel's half: a check that is placed in a module has an entry of type
 * EX_TYPE_DEFAULT in its exception table, which leads to the slow path. (Of addresses that are no addresses at all,
 * those below the kernel's half, some lead to other readable memory. A store to them cannot succeed either.)
 *
 * The check
 *
 *	lea	MEM, %r
 *	shr	$3, %r
 *	add	guardrail_table(%rip), %r
 *	cmpb	$GUARDRAIL_ENTRY(domain, GUARDRAIL_WRITE), (%r)
 *	jne	slow		# guardrail_write_slow(address, size, domain, address of the store)
 *
 * decides alone where the access lies in one slot. An access that may span two slots compares both entries, or asks the slow path.
 * The check before an indirect call compares with GUARDRAIL_ENTRY(domain, GUARDRAIL_ICALL); targets that are no
 * multiple of 8 have to take the slow path, since a granted function may begin in the same slot.
 *
 * Slow paths are ordinary functions: they clobber what the calling convention lets them, flags too, and may be called
 * wherever driver code runs (not in NMIs). They return where the access is allowed, and after a violation was reported where
 * the policy is to go on.
 *
 * Synchronization is as in the paper: none in the check and none where whole slots become writable or read-only. What
 * is shared between domains or needs a part of a slot is changed by compare-and-swap or under the conflict table's lock. Two threads
 * that change the rights of one domain to the same bytes at the same time are a race in the driver, and either may win.
 * A right that a domain holds is seen by its checks whatever other domains do, with one exception: bytes that two domains are
 * granted at the very same moment. Wrappers do not let that happen: memory is given to one domain before another hears of it.
 */
#ifndef GUARDRAIL_H
#define GUARDRAIL_H

#define GUARDRAIL_ABI 1
#define GUARDRAIL_MAGIC 0x4c524447	/* "GDRL" */

#define GUARDRAIL_SLOT_SHIFT 3
#define GUARDRAIL_SLOT 8

/* Domains are 1 to 15; 0 is the kernel with everything that is trusted. */
#define GUARDRAIL_DOMAINS 16

/* Rights. A byte has at most one of each domain. */
#define GUARDRAIL_READ 0
#define GUARDRAIL_WRITE 1		/* the whole slot is writable */
#define GUARDRAIL_WRITE_LOW 2		/* its first four bytes are, the others are not */
#define GUARDRAIL_WRITE_HIGH 3		/* its last four bytes are */
#define GUARDRAIL_ICALL 4		/* a function begins here that may be called by pointer */
#define GUARDRAIL_OWNER 5		/* a guard: the memory beside it is the domain's to free */
#define GUARDRAIL_OBJECT 6		/* a kernel object begins here; the slot is not writable */
#define GUARDRAIL_OBJECT_WRITE 7	/* a kernel object begins here; the slot is writable */

#define GUARDRAIL_ENTRY(domain, right) ((domain) << 4 | (right))
#define GUARDRAIL_CONFLICT 0xff

/* For guardrail_module.flags; others are refused. */
#define GUARDRAIL_FLAGS 0

#ifndef __ASSEMBLY__
#include <linux/types.h>

struct guardrail_range {
	unsigned long start;
	unsigned long len;
};

/*
 * What a guarded module is, in its read-only data. Its init and exit functions are stubs that call guardrail_module_enter()
 * and guardrail_module_leave() with this.
 */
struct guardrail_module {
	u32 magic;
	u32 abi;
	u32 domain;
	u32 flags;
	const char *name;
	int (*init)(void);				/* the module's own, or NULL */
	void (*exit)(void);				/* the module's own, or NULL */
	const struct guardrail_range *writable;		/* its data */
	u64 n_writable;
	const struct guardrail_range *init_only;	/* its data that goes when init has returned */
	u64 n_init_only;
	const unsigned long *targets;			/* its functions whose address is taken */
	u64 n_targets;
};

/* Add to (p >> GUARDRAIL_SLOT_SHIFT) for the address of the entry of p. */
extern unsigned long guardrail_table;

/* Life of a guarded module. -ENOEXEC: its struct is of no use, -ENOMEM: no memory for its rights; else what init says. */
int guardrail_module_enter(const struct guardrail_module *module);
void guardrail_module_leave(const struct guardrail_module *module);

/* Slow paths of checks. @ip: the address of the checked instruction, for the report. */
void guardrail_write_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip);
void guardrail_range_slow(unsigned long addr, unsigned long len, unsigned long domain, unsigned long ip);
void guardrail_icall_slow(unsigned long target, unsigned long domain, unsigned long ip);

/*
 * Rights. Where nothing else is said, these may be called in any context but NMI. Those that return int return 0, or -ENOMEM where memory
 * for the table or a side table is needed and neither the reserve nor the page allocator has any; -EINVAL where the range is not in
 * the kernel's half or the domain is none. A grant that fails for want of table memory has granted nothing. A revocation
 * that fails has left rights that it could not split: never fewer than before.
 */

/* Populates the table for a range ahead, in a context that may sleep; grants there need no reserve afterwards. */
int guardrail_prepare(unsigned long p, unsigned long n);

/* [p, p + n) becomes writable; objects that began there are none of the domain's any more. */
int guardrail_set_write(u32 domain, unsigned long p, unsigned long n);
/* [p, p + n) becomes writable; objects stay objects. */
int guardrail_add_write(u32 domain, unsigned long p, unsigned long n);
/* The domain holds nothing of [p, p + n) but the right to read; objects that began there are none of its any more. */
int guardrail_clear(u32 domain, unsigned long p, unsigned long n);
/* True where every byte of [p, p + n) is writable by the domain. Says nothing in the log. */
bool guardrail_check_write(u32 domain, unsigned long p, unsigned long n);

struct guardrail_field {
	u32 offset;
	u32 size;
};
/* The fields of an object become writable; whether it is an object stays as it is. */
int guardrail_set_fields(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n);

/*
 * Kernel objects: [p, p + size) becomes read-only, and p the start of an object of that type (a number that wrappers agree on,
 * not 0) in state 0. An address can be an object of one type at a time for a domain: -EEXIST otherwise.
 */
int guardrail_set_object(u32 domain, unsigned long p, unsigned long size, u32 type);
/* True where p is an object of that type, in whatever state. */
bool guardrail_check_object(u32 domain, unsigned long p, u32 type);
/* The object's state, or -ENOENT. */
int guardrail_object_state(u32 domain, unsigned long p, u32 type);
/* Moves the object from one state to another at once: -ENOENT where it is none, -EBUSY where it is in another state. */
int guardrail_move_object(u32 domain, unsigned long p, u32 type, u32 from, u32 to);
/* It is an object no more; its bytes stay read-only. -ENOENT where it was none. */
int guardrail_clear_object(u32 domain, unsigned long p, u32 type);
/* The address of the first object of the domain that begins in [p, p + n), or 0: memory in which one lives must not be freed. */
unsigned long guardrail_find_object(u32 domain, unsigned long p, unsigned long n);

/*
 * Ownership of the allocation [p, p + size) that functions of kind @kind free. @guard: the address of 8 bytes beside it that nobody
 * may write, which become the mark, or 0 where there are none: then only the side table knows, and writes to the first
 * bytes stay fast.
 */
int guardrail_set_owner(u32 domain, unsigned long p, unsigned long size, u32 kind, unsigned long guard);
/* True where the domain owns the allocation that begins at p; its size is stored where @size is not NULL. */
bool guardrail_check_owner(u32 domain, unsigned long p, u32 kind, unsigned long *size);
/* Gives the ownership up, once: -ENOENT where there is none. */
int guardrail_clear_owner(u32 domain, unsigned long p, u32 kind);

/* The function at p may be called by pointer. */
int guardrail_set_icall(u32 domain, unsigned long p);
/* True where it may: by right, or since it is code that belongs to no guarded module. */
bool guardrail_check_icall(u32 domain, unsigned long p);

/* Something that a domain holds. */
struct guardrail_held {
	unsigned long start;
	unsigned long len;
	u32 domain;
	u32 right;	/* GUARDRAIL_WRITE, _ICALL, _OBJECT or _OWNER */
	u32 type;	/* of an object; the kind of an owned allocation; else 0 */
	u32 state;	/* of an object */
};
/*
 * Tells all that a domain holds: first its maximal writable ranges and its call targets by address, then objects and owned
 * allocations in no order. Only parts of the table that are populated are looked at. No lock is held when @each is called, so it
 * may change the rights; what changes meanwhile may be told or not. Ends early where @each returns other than 0, with that.
 * May sleep.
 */
int guardrail_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data);
/* Takes all away that a domain holds. May sleep. */
void guardrail_clear_domain(u32 domain);

/* What wrappers report: the thing as a whole in words, after "guardrail: violation: ". */
struct guardrail_violation {
	const char *what;	/* such as "write of 8 bytes at" */
	unsigned long addr;	/* stands behind it */
	unsigned long ip;	/* who did it */
	u32 domain;
	const char *holds;	/* what it has */
	const char *needs;	/* what it lacks */
};
void guardrail_report(const struct guardrail_violation *violation);
/* The number of violations of a domain since guardrail.ko was loaded. */
unsigned long guardrail_violations(u32 domain);

/* What the table takes. */
struct guardrail_usage {
	unsigned long table_pages;	/* pages with entries */
	unsigned long tree_pages;	/* pages of the page tables that map them */
	unsigned long reserve;		/* pages that wait */
	unsigned long conflicts;	/* slots in the conflict table */
	unsigned long records;		/* objects and owned allocations */
};
void guardrail_usage(struct guardrail_usage *usage);
#endif /* __ASSEMBLY__ */
#endif /* GUARDRAIL_H */
