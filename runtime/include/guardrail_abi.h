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
 *	ror	$3, %r
 *	add	guardrail_table(%rip), %r
 *	cmpb	$GUARDRAIL_ENTRY(domain, GUARDRAIL_WRITE), (%r)
 *	jne	slow		# guardrail_write_slow(address, size, domain, address of the store)
 *
 * decides alone where the access lies in one slot. An access of 8 bytes does where its address is a multiple of 8, which is why the check rotates: any
 * of the low bits that is set comes to stand at the top and makes the entry's address none that there can be, and the check faults.
 * Accesses of 4 and 2 bytes rotate by as many bits as have to be 0, and shift by the rest; those of one byte shift. An access to several slots
 * compares as many entries, or asks the slow path. (A user address that is 1 more than a multiple of the size leads to other
 * memory of the kernel, mostly to none. The store itself faults then where the processor has SMAP.)
 * The check before an indirect call compares with GUARDRAIL_ENTRY(domain, GUARDRAIL_ICALL); targets that are no
 * multiple of 8 take the slow path by the same fault, since a granted function may begin in the same slot.
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
#ifndef GUARDRAIL_ABI_H
#define GUARDRAIL_ABI_H

#define GUARDRAIL_ABI 6
#define GUARDRAIL_MAGIC 0x4c524447	/* "GDRL" */

#define GUARDRAIL_SLOT_SHIFT 3
#define GUARDRAIL_SLOT 8

/* Domains are 1 to 14; 0 is the kernel with everything that is trusted. (15 would make a frame's entry that of a conflict.) */
#define GUARDRAIL_DOMAINS 15

/* Rights. A byte has at most one of each domain. */
#define GUARDRAIL_READ 0
#define GUARDRAIL_WRITE 1		/* the whole slot is writable */
#define GUARDRAIL_WRITE_LOW 2		/* its first four bytes are, the others are not */
#define GUARDRAIL_WRITE_HIGH 3		/* its last four bytes are */
#define GUARDRAIL_ICALL 4		/* a function begins here that may be called by pointer */
#define GUARDRAIL_OWNER 5		/* a large buffer begins or ends here of which nothing has been granted yet (buffer.c) */
#define GUARDRAIL_OBJECT 6		/* a kernel object begins here; the slot is not writable */
#define GUARDRAIL_OBJECT_WRITE 7	/* a kernel object begins here; the slot is writable */
#define GUARDRAIL_MASK 8		/* and those above: a set of bytes is writable that the runtime has noted for the domain */
#define GUARDRAIL_MASKS 7		/* so many of these there are */
#define GUARDRAIL_SKB 15		/* a network frame (struct sk_buff) begins here: an object that has no record; the slot is not writable */
/* Single slots take no more of them than that; the others are for fields of small structures, which come again and again. */
#define GUARDRAIL_SINGLE_MASKS 3

#define GUARDRAIL_ENTRY(domain, right) ((domain) << 4 | (right))
#define GUARDRAIL_CONFLICT 0xff

/* For guardrail_module.flags; others are refused. */
#define GUARDRAIL_FLAGS 0

/* For guardrail_action.op: which guardrail_do_…() it is for. */
#define GUARDRAIL_OP_GRANT 1
#define GUARDRAIL_OP_REVOKE 2
#define GUARDRAIL_OP_REQUIRE_WRITE 3
#define GUARDRAIL_OP_OWN 4
#define GUARDRAIL_OP_DISOWN 5
#define GUARDRAIL_OP_FIELDS 6
#define GUARDRAIL_OP_UNFIELDS 7
#define GUARDRAIL_OP_OBJECT 8
#define GUARDRAIL_OP_REQUIRE_OBJECT 9
#define GUARDRAIL_OP_MOVE_OBJECT 10
#define GUARDRAIL_OP_CLEAR_OBJECT 11
#define GUARDRAIL_OP_REQUIRE_CALL 12
#define GUARDRAIL_OP_EXIT 13
#define GUARDRAIL_OP_CUSTOM 14
#define GUARDRAIL_OP_END_OBJECT 15

/* For guardrail_action.when. */
#define GUARDRAIL_ALWAYS 0
#define GUARDRAIL_RESULT_VALID 1		/* the result is a pointer, neither NULL nor an error */
#define GUARDRAIL_RESULT_ZERO 2			/* the result, an int, is 0 */
#define GUARDRAIL_RESULT_NOT_NEGATIVE 3		/* the result, an int, is 0 or more */
#define GUARDRAIL_RESULT_TRUE 4			/* the result, a bool, is true */
#define GUARDRAIL_NONZERO 5			/* the frame's word when_word is not 0 */

/* For guardrail_action.from. */
#define GUARDRAIL_ANY_STATE (~0U)

/* For guardrail_value.kind. */
#define GUARDRAIL_VALUE_CONST 0
#define GUARDRAIL_VALUE_WORD 1
#define GUARDRAIL_VALUE_TERMS 2
#define GUARDRAIL_VALUE_HALF 3		/* the lower four bytes of a word, as an unsigned int is passed */

/* For guardrail_term.op, on a stack of values. */
#define GUARDRAIL_TERM_CONST 0		/* pushes the operand */
#define GUARDRAIL_TERM_WORD 1		/* pushes the frame's word n */
#define GUARDRAIL_TERM_LOAD 2		/* replaces an address by the n bytes at it plus the operand, zero-extended */
#define GUARDRAIL_TERM_LOW 3		/* replaces a value by its lowest n bytes */
#define GUARDRAIL_TERM_ADD 4		/* replaces two by their sum */
#define GUARDRAIL_TERM_MUL 5		/* replaces two by their product */
#define GUARDRAIL_TERM_SHL 6		/* replaces two by the first shifted to the left by the second */
/* A value has no more terms than that, and needs no deeper stack. */
#define GUARDRAIL_MAX_TERMS 16
#define GUARDRAIL_MAX_DEPTH 4

/* For guardrail_event(). */
#define GUARDRAIL_EVENT_LOAD 1
#define GUARDRAIL_EVENT_STORE 2
#define GUARDRAIL_EVENT_CALL 3		/* the address is that of the function where a pointer says it, else 0 */
#define GUARDRAIL_EVENT_ENTRY 4
#define GUARDRAIL_EVENT_EXIT 5
#define GUARDRAIL_EVENTS 6
#define GUARDRAIL_EVENT_PERCPU 0x10	/* with the first two: the address is an offset, as per-CPU pointers have it */

/* For guardrail_entry.flags. */
#define GUARDRAIL_ENTRY_CALLERS_STACK 1	/* may write its callers' stack */
#define GUARDRAIL_ENTRY_EXIT 2		/* the module's exit function, which does all of its work unless all is taken back without it */

#ifndef __ASSEMBLY__
#include <linux/atomic.h>
#include <linux/percpu.h>
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
/* @offset: the address of a per-CPU variable as per-CPU pointers have it. */
void guardrail_percpu_slow(unsigned long offset, unsigned long size, unsigned long domain, unsigned long ip);
void guardrail_icall_slow(unsigned long target, unsigned long domain, unsigned long ip);

/*
 * Loops of guarded modules count this down where they begin anew, and where it becomes negative call the function, which sets it anew and returns,
 * unless the loop has gone on for too long with interrupts off.
 */
DECLARE_PER_CPU(int, guardrail_loops);
void guardrail_loop_slow(unsigned long domain, unsigned long ip);

/*
 * The number of objects on stacks of guarded modules that were handed to the kernel. Where it is not 0 a function with variables of which
 * the address is taken calls the second one before its frame goes. @end: where the frame ends.
 */
extern atomic_t guardrail_frames;
void guardrail_frame_slow(unsigned long end, unsigned long domain, unsigned long ip);

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
 *
 * Network frames come and go more often than all others, so the table alone says that there is one: they have type, size and state that are
 * the same for all.
 */
#define GUARDRAIL_TYPE_SKB (1U << 12)
int guardrail_set_object(u32 domain, unsigned long p, unsigned long size, u32 type);
/* The network frame at p is one no more, and nothing of it may be written; false where there was none. */
bool guardrail_skb_goes(u32 domain, unsigned long p);
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
/* The same for what handlers of interrupts are called with. */
unsigned long guardrail_find_irq(u32 domain, unsigned long start, unsigned long size);

/*
 * Ownership of the allocation [p, p + size) that functions of kind @kind free. Only a side table knows of it, so writes to the first bytes
 * stay fast.
 */
int guardrail_set_owner(u32 domain, unsigned long p, unsigned long size, u32 kind);
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
 * Tells all that a domain holds: first its maximal writable ranges, its call targets, network frames and buffers that were not granted yet by
 * address, then other objects and owned allocations in no order. Only parts of the table that are populated are looked at. No lock is held when @each is called, so it
 * may change the rights; what changes meanwhile may be told or not. Ends early where @each returns other than 0, with that.
 * May sleep.
 */
int guardrail_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data);
/* Takes all away that a domain holds. May sleep. */
void guardrail_clear_domain(u32 domain);

/*
 * Events
 *
 * A module can be rewritten to tell of what it does, each time just before it does so: an event, the memory that it is about, and
 * the address of the instruction. Whoever listens is called for each, in any context that driver code runs in, with preemption off.
 */
void guardrail_event(unsigned long addr, unsigned long size, unsigned long event, unsigned long ip);

typedef void (*guardrail_listener)(unsigned long addr, unsigned long size, unsigned int event, unsigned long ip);
/* -EBUSY where somebody listens already. */
int guardrail_listen(guardrail_listener listener);
/* When this returns the listener is called no more. May sleep. */
void guardrail_unlisten(guardrail_listener listener);

/*
 * Interposition
 *
 * Calls of the module to functions of the kernel that have actions go to thunks in the module, and so do calls of the
 * kernel to functions of the module. A thunk keeps the arguments in a frame on the stack and does the actions before
 * and after the function, each by a call of guardrail_do_…(action, frame). Actions are read-only data of the
 * module.
 */

/* Arguments and result of a call. The words' numbers are those that values name. */
struct guardrail_frame {
	unsigned long args[6];		/* 0 to 5 */
	unsigned long result;		/* 6 */
	unsigned long second;		/* 7: the upper half of a result of 16 bytes */
	unsigned long caller;		/* 8: where the call returns to */
	unsigned long stack[];		/* 9...: arguments on the stack */
};
#define GUARDRAIL_WORD_RESULT 6
#define GUARDRAIL_WORD_STACK 9

/* How a value is worked out from a frame. */
struct guardrail_term {
	u8 op;
	u8 n;
	u16 reserved[3];
	s64 operand;
};
struct guardrail_value {
	u8 kind;
	u8 word;			/* where it is a word of the frame */
	u16 n_terms;
	u32 reserved;
	union {
		s64 constant;
		const struct guardrail_term *terms;
	};
};

struct guardrail_action {
	u8 op;
	u8 when;
	u8 when_word;
	u8 domain;
	u32 type;			/* of an object; the kind of an allocation */
	u32 from;			/* state of an object, or GUARDRAIL_ANY_STATE */
	u32 to;
	struct guardrail_value pointer;
	struct guardrail_value size;
	const struct guardrail_field *fields;
	u32 n_fields;
	u32 reserved;
	const char *function;		/* that the action belongs to */
};

/*
 * The actions; see crates/rewrite/src/wrap/mod.rs for what each does. What is required and not so is reported. Actions that give rights
 * return -ENOMEM where there is no memory for them, else 0: before an entry into the module this means that the
 * function must not be called; elsewhere there is nothing that could be done, and it is told in the log.
 *
 * Beside these there are guardrail_custom_…() of the same form, for what the kernel's headers are needed for. Where the annotations say that one
 * is called instead of a function of the kernel, that function is called only if it returns 0; else the frame has the result.
 */
int guardrail_do_grant(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_revoke(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_require_write(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_own(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_disown(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_fields(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_unfields(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_object(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_require_object(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_move_object(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_clear_object(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_end_object(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_require_call(const struct guardrail_action *action, struct guardrail_frame *frame);
int guardrail_do_exit(const struct guardrail_action *action, struct guardrail_frame *frame);

/* What actions of other kinds (guardrail_custom_…) are written with. */
/* True where the action is to be done. */
bool guardrail_applies(const struct guardrail_action *action, const struct guardrail_frame *frame);
/* Works a value out; false where something could not be read, and then nothing is to be done. */
bool guardrail_value(const struct guardrail_value *value, const struct guardrail_frame *frame, unsigned long *result);
/*
 * Reports that the function of the action was given what the domain may not give it. @what: such as "write of 64 bytes at", before
 * the address. @holds, @needs: as in struct guardrail_violation.
 */
void guardrail_refuse(const struct guardrail_action *action, const struct guardrail_frame *frame, const char *what,
		      unsigned long addr, const char *holds, const char *needs);
/* True where the domain may write [p, p + n), on its own part of the stack or by right; reported where it may not. */
bool guardrail_require_write(const struct guardrail_action *action, const struct guardrail_frame *frame,
			     unsigned long p, unsigned long n);

/* A function of the module that others call. */
struct guardrail_entry {
	u32 domain;
	u32 flags;
	long dead;			/* what it returns where it is not called */
	const char *function;		/* its name */
};

/* How things stood where an entry began, so that it can be ended from within. The first ten are stored by guardrail_enter() in assembly. */
struct guardrail_saved {
	unsigned long rbx, rbp, r12, r13, r14, r15;
	unsigned long sp;			/* of the thunk, when guardrail_enter() has returned */
	unsigned long ip;			/* where guardrail_enter() returns to */
	unsigned long flags;			/* of the processor */
	unsigned long unwound;			/* the entry was ended from within */
	int preempt_count;
	int rcu_nesting;			/* where reading by RCU is counted for itself */
	int pagefault_disabled;
	int migration_disabled;
};

/*
 * What a thunk puts on the stack for an entry into the module. The function's own part of the stack begins below it: the record is
 * not the module's to write, and neither is what the callers have above.
 */
struct guardrail_record {
	void *task;			/* the note of the current task, of which this is the innermost record */
	struct guardrail_record *previous;
	unsigned long previous_limit;
	const struct guardrail_entry *entry;
	struct guardrail_saved saved;
	struct guardrail_frame frame;
};

/*
 * Before and after the function. Where guardrail_enter() returns a negative number the function must not be called: the domain is dead, or there
 * is no memory for the note; the frame's result is what to return then, and guardrail_leave() is not called.
 *
 * Where the entry is ended from within (guardrail_unwind()), guardrail_enter() returns once more, with 1. Then the actions after the function
 * are done, guardrail_leave() is called, and the entry's error value is returned.
 */
int guardrail_enter(const struct guardrail_entry *entry, struct guardrail_record *record) __attribute__((returns_twice));
void guardrail_leave(struct guardrail_record *record);

/*
 * Ends the innermost entry of the current task, if it is one into this domain: goes on in its thunk, which returns the entry's error value to
 * whoever has called it. Called from code of the domain, or from what it has called with no lock held. Returns where there is no such entry.
 */
void guardrail_unwind(u32 domain);

/* Entries into the domain are refused from now on, until its next module comes. */
void guardrail_kill(u32 domain);
bool guardrail_is_dead(u32 domain);

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
	unsigned long inside;		/* tasks that are in guarded modules */
	unsigned long masks;		/* sets of bytes that entries stand for, of all domains */
};
void guardrail_usage(struct guardrail_usage *usage);
#endif /* __ASSEMBLY__ */
#endif /* GUARDRAIL_ABI_H */
