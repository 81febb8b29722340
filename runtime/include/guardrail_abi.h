/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The contract between guarded modules, which crates/rewrite makes, and guardrail.ko: the table of rights, the structs that
 * a guarded module carries, and the functions that it calls. This is its only home: crates/abi is generated from this file.
 * A change that code built earlier relies on raises GUARDRAIL_ABI.
 *
 * The table
 *
 * Each slot of 8 bytes in the kernel's half of the address space has one byte in one linear table, its tag:
 *
 *	address of the tag of the byte at p = (p >> GUARDRAIL_SLOT_SHIFT) + guardrail_table	(modulo 2^64)
 *
 * Checks read guardrail_table as each CPU has it. While a transaction is under way on a CPU, that CPU has another value, with
 * which checks find no right: each goes to the slow path, which notes what the store overwrites.
 *
 * A tag of 0 says that no domain may do more than read the slot. GUARDRAIL_CONFLICT says that the rights to the slot stand
 * in a side table, the conflict table. Any other tag holds the number of a domain in its upper four bits, and a right in its
 * lower four.
 *
 * The table has memory only where something was granted. A read of a tag elsewhere faults, and so does a read of the "tag"
 * of an address outside the kernel's half. Each check in a module therefore has a row of type EX_TYPE_DEFAULT in the
 * exception table, which leads to the slow path. (Some non-canonical addresses below the kernel's half lead to other
 * readable memory. A store to them cannot succeed either.)
 *
 * The check
 *
 *	lea	MEM, %r
 *	ror	$3, %r
 *	add	%gs:guardrail_table(%rip), %r
 *	cmpb	$GUARDRAIL_TAG(domain, GUARDRAIL_WRITE), (%r)
 *	jne	slow		# guardrail_write_slow(address, size, domain, address of the store)
 *
 * This check decides alone where the access lies in one slot. An access of 8 bytes lies in one slot if its address is a
 * multiple of 8. That is why the check rotates: any low bit that is set moves to the top, the tag's address becomes invalid,
 * and the check faults. Checks of 4 and 2 bytes rotate by the bits that must be 0 and shift by the rest; those of one byte
 * shift. A check of several slots compares as many tags, or asks the slow path. (A user address that is 1 more than a
 * multiple of the size leads to other kernel memory, mostly unmapped. The store itself then faults if the processor has
 * SMAP.) The check before an indirect call compares with GUARDRAIL_TAG(domain, GUARDRAIL_CALL). A target that is no
 * multiple of 8 takes the slow path by the same fault, since a granted function may begin in the same slot. The slow path
 * returns the address to call, which the module puts into the register of the call.
 *
 * Slow paths are ordinary functions. They clobber what the calling convention allows, flags included. They may be called
 * wherever driver code runs; in NMIs they allow everything, since entries are refused there. They return if the access is allowed, and after a violation if the policy says
 * to go on.
 *
 * Synchronization is as in the BGI paper. The check needs none, and neither does a grant or revocation of whole slots. A
 * change to what domains share, or to a part of a slot, uses compare-and-swap or the conflict table's lock. Two threads that
 * change the rights of one domain to the same bytes at the same time are a race in the driver, and either may win. A
 * domain's checks see a right that it holds, whatever other domains do, with one exception: bytes that two domains are
 * granted at the same moment. Thunks avoid that: one domain is granted memory before another learns of it.
 */
#ifndef GUARDRAIL_ABI_H
#define GUARDRAIL_ABI_H

#define GUARDRAIL_ABI 13
#define GUARDRAIL_MAGIC 0x4c524447	/* "GDRL" */

#define GUARDRAIL_SLOT_SHIFT 3
#define GUARDRAIL_SLOT 8		/* bytes */

/* Domains are 1 to 14; 0 is the kernel with all that is trusted. 15 would make an object's tag that of a conflict. */
#define GUARDRAIL_DOMAINS 15

/* Masks (GUARDRAIL_MASK and the rights behind it): sets of bytes that a domain may write. */
#define GUARDRAIL_MASKS 7
/* Single slots take no more masks than this; the others are for fields of small structures, which occur again and again. */
#define GUARDRAIL_SINGLE_MASKS 3

#define GUARDRAIL_TAG(domain, right) ((domain) << 4 | (right))
#define GUARDRAIL_CONFLICT 0xff

/* For guardrail_module.flags; others are refused. */
#define GUARDRAIL_FLAGS 0

/* For guardrail_action.from. */
#define GUARDRAIL_ANY_STATE (~0U)

/* Most terms of a value, and the deepest stack that they need. */
#define GUARDRAIL_MAX_TERMS 16
#define GUARDRAIL_MAX_DEPTH 4

/* Words of struct guardrail_call; those below GUARDRAIL_WORD_RESULT are the arguments in registers. */
#define GUARDRAIL_WORD_RESULT 6
#define GUARDRAIL_WORD_STACK 9

/*
 * Prototypes, as far as calls differ: the number of parameters, and two bits for the kind of each, the first in the lowest
 * bits behind the flags. 0 is a prototype that nothing is known of.
 */
#define GUARDRAIL_PROTO_COUNT 0x0f
#define GUARDRAIL_PROTO_VARIADIC 0x40
#define GUARDRAIL_PROTO_KNOWN 0x80
#define GUARDRAIL_PROTO_SHIFT 8		/* of the first kind */
#define GUARDRAIL_PROTO_MOST 12		/* kinds; a function of more parameters has no known prototype */
#define GUARDRAIL_PROTO_NUMBER 0
#define GUARDRAIL_PROTO_POINTER 1
#define GUARDRAIL_PROTO_OTHER 2

/*
 * For guardrail_spill.words: how many words there are, and whether the first is that at RBP, as in frames that are aligned;
 * else it is the one below the return address. A frame that is aligned may have that one, too.
 */
#define GUARDRAIL_SPILL_WORDS 30
#define GUARDRAIL_SPILL_BY_RBP 0x80000000
#define GUARDRAIL_SPILL_TOP 0x40000000
#define GUARDRAIL_SPILL_ALL 0xffffffff	/* all of the frame, whatever its size; no row has it */

/* Most kinds of allocations and types of objects (enum guardrail_kind), those included that only annotations name. */
#define GUARDRAIL_MAX_KINDS 30

#ifndef __ASSEMBLY__
#include <linux/atomic.h>
#include <linux/percpu.h>
#include <linux/types.h>

/* What a domain may do with a byte, or with the slot that it lies in. A byte has at most one right of each domain. */
enum guardrail_right {
	GUARDRAIL_READ = 0,
	GUARDRAIL_WRITE = 1,		/* write the whole slot */
	GUARDRAIL_WRITE_LOW = 2,	/* write its first four bytes */
	GUARDRAIL_WRITE_HIGH = 3,	/* write its last four bytes */
	GUARDRAIL_CALL = 4,		/* call by pointer the function that begins here */
	GUARDRAIL_OWNER = 5,		/* a large buffer begins or ends here of which nothing was granted yet */
	GUARDRAIL_OBJECT = 6,		/* a kernel object begins here; the slot is not writable */
	GUARDRAIL_OBJECT_WRITE = 7,	/* a kernel object begins here; the slot is writable */
	GUARDRAIL_MASK = 8,		/* the first of the masks: write a set of bytes that the runtime keeps for the domain */
	GUARDRAIL_SKB = 15,		/* a packet (struct sk_buff) begins here: an object without a record; the slot is not writable */
};

/* For guardrail_action.kind: guardrail_do_NAME() performs GUARDRAIL_ACTION_NAME. */
enum guardrail_action_kind {
	GUARDRAIL_ACTION_GRANT = 1,
	GUARDRAIL_ACTION_REVOKE = 2,
	GUARDRAIL_ACTION_REQUIRE_WRITE = 3,
	GUARDRAIL_ACTION_OWN = 4,
	GUARDRAIL_ACTION_DISOWN = 5,
	GUARDRAIL_ACTION_GRANT_FIELDS = 6,
	GUARDRAIL_ACTION_REVOKE_FIELDS = 7,
	GUARDRAIL_ACTION_CREATE_OBJECT = 8,
	GUARDRAIL_ACTION_REQUIRE_OBJECT = 9,
	GUARDRAIL_ACTION_MOVE_OBJECT = 10,
	GUARDRAIL_ACTION_FORGET_OBJECT = 11,
	GUARDRAIL_ACTION_REQUIRE_CALL = 12,
	GUARDRAIL_ACTION_EXIT = 13,
	GUARDRAIL_ACTION_CUSTOM = 14,	/* performed by a guardrail_custom_NAME() */
	GUARDRAIL_ACTION_DESTROY_OBJECT = 15,
	GUARDRAIL_ACTION_REGISTERS = 16,
	GUARDRAIL_ACTION_UNREGISTERS = 17,
	GUARDRAIL_ACTION_REQUIRE_CALLS = 18,
	GUARDRAIL_ACTION_DEFER = 19,
	GUARDRAIL_ACTION_REVERSE = 20,
	GUARDRAIL_ACTION_TOUCH = 21,
	GUARDRAIL_ACTION_IRREVOCABLE = 22,
	GUARDRAIL_ACTION_SAVE = 23,
};

/* For guardrail_action.when: when the action is performed. */
enum guardrail_when {
	GUARDRAIL_ALWAYS = 0,
	GUARDRAIL_RESULT_VALID = 1,		/* if the result is a pointer, neither NULL nor an error */
	GUARDRAIL_RESULT_ZERO = 2,		/* if the result, an int, is 0 */
	GUARDRAIL_RESULT_NOT_NEGATIVE = 3,	/* if the result, an int, is 0 or more */
	GUARDRAIL_RESULT_TRUE = 4,		/* if the result, a bool, is true */
	GUARDRAIL_NONZERO = 5,			/* if the call's word when_word is not 0 */
	GUARDRAIL_OF_ENTRY = 0x80,		/* added: before a function of the module, and not if the module calls it itself */
};

/* For guardrail_value.kind. */
enum guardrail_value_kind {
	GUARDRAIL_VALUE_CONST = 0,
	GUARDRAIL_VALUE_WORD = 1,	/* a word of the call */
	GUARDRAIL_VALUE_TERMS = 2,
	GUARDRAIL_VALUE_HALF = 3,	/* the lower four bytes of a word, as an unsigned int is passed */
};

/* For guardrail_term.op, which works on a stack of values. */
enum guardrail_term_op {
	GUARDRAIL_TERM_CONST = 0,	/* push the operand */
	GUARDRAIL_TERM_WORD = 1,	/* push the call's word n */
	GUARDRAIL_TERM_LOAD = 2,	/* replace an address by the n bytes at it plus the operand, zero-extended */
	GUARDRAIL_TERM_LOW = 3,		/* replace a value by its lowest n bytes */
	GUARDRAIL_TERM_ADD = 4,		/* replace two values by their sum */
	GUARDRAIL_TERM_MUL = 5,		/* replace two values by their product */
	GUARDRAIL_TERM_SHL = 6,		/* replace two values by the first shifted left by the second */
};

/*
 * Kinds of allocations (which function frees them) and types of objects, by the names that annotations give them. Annotations
 * may name more, which take the free bits above in the order of their lines.
 */
enum guardrail_kind {
	GUARDRAIL_KIND_SLAB = 1U << 0,
	GUARDRAIL_KIND_VMALLOC = 1U << 1,
	GUARDRAIL_KIND_PAGE = 1U << 2,
	GUARDRAIL_KIND_PERCPU = 1U << 3,
	GUARDRAIL_KIND_DMA = 1U << 4,
	GUARDRAIL_KIND_IO = 1U << 5,
	GUARDRAIL_KIND_MANAGED = 1U << 6,
	GUARDRAIL_KIND_FRAG = 1U << 7,
	GUARDRAIL_TYPE_NETDEV = 1U << 8,
	GUARDRAIL_TYPE_NAPI = 1U << 9,
	GUARDRAIL_TYPE_TIMER = 1U << 10,
	GUARDRAIL_TYPE_WORK = 1U << 11,
	GUARDRAIL_TYPE_SKB = 1U << 12,
	GUARDRAIL_TYPE_SCSI_CMND = 1U << 13,
	GUARDRAIL_KIND_HOSTDATA = 1U << 14,
	GUARDRAIL_TYPE_MISCDEVICE = 1U << 15,
	GUARDRAIL_TYPE_RCU_HEAD = 1U << 16,
	GUARDRAIL_TYPE_POOL = 1U << 17,
	GUARDRAIL_TYPE_URB = 1U << 18,
	GUARDRAIL_KIND_POOLED = 1U << 19,
};

/* For guardrail_event(). */
enum guardrail_event_kind {
	GUARDRAIL_EVENT_LOAD = 1,
	GUARDRAIL_EVENT_STORE = 2,
	GUARDRAIL_EVENT_CALL = 3,	/* the address is the function of a call by pointer, else 0 */
	GUARDRAIL_EVENT_ENTRY = 4,
	GUARDRAIL_EVENT_EXIT = 5,
	GUARDRAIL_EVENTS = 6,		/* one more than the last */
	GUARDRAIL_EVENT_PERCPU = 0x10,	/* added to load and store: the address is an offset, as per-CPU pointers have it */
};

/* For guardrail_entry.flags. */
enum guardrail_entry_flags {
	GUARDRAIL_ENTRY_CALLERS_STACK = 1,	/* the function may write its callers' stack */
	GUARDRAIL_ENTRY_EXIT = 2,		/* the module's exit function, which does all its work unless teardown does it */
	GUARDRAIL_ENTRY_SELECTED = 4,		/* a transaction from the start on */
	GUARDRAIL_ENTRY_BINDS = 8,		/* it binds or unbinds a device, which is no transaction */
	GUARDRAIL_ENTRY_POWER = 16,		/* it saves or restores a device, which transactions rely on */
	GUARDRAIL_ENTRY_POLL = 32,		/* a poll of NAPI: it is called again where it returns its second argument */
};

struct guardrail_range {
	unsigned long start;
	unsigned long len;		/* bytes */
};

/*
 * A function or variable of the kernel or of another module that a guarded module imports, whether it calls a function or
 * takes its address. Pointers to it keep their values, which the kernel and modules compare. A call by pointer leads to @call.
 */
struct guardrail_import {
	unsigned long function;		/* or variable */
	unsigned long call;		/* the module's thunk, or the function itself if it has no actions; 0 for a variable */
	u32 proto;			/* GUARDRAIL_PROTO_… */
	u32 reserved;
};

/*
 * Which words of a function's frame hold what its caller has in registers, from an offset of code on, up to that of the next
 * row. It holds where the code calls something.
 */
struct guardrail_spill {
	u32 at;
	u32 words;			/* GUARDRAIL_SPILL_…: a bit for each, from the first down */
};

/*
 * A function of the module whose address is taken. If an entry into it brings rights, it may be called only as functions of
 * its type are, since its arguments are what that type says.
 */
struct guardrail_own_function {
	unsigned long function;		/* its thunk */
	u32 type;			/* the number of its type; 0 if an entry brings nothing */
	u32 reserved;
};

/* A part of the module's code. It is known by its end, since a pointer to where it begins would be one to a function. */
struct guardrail_text {
	unsigned long end;
	u64 len;			/* bytes */
	const struct guardrail_spill *spills;	/* by offset; NULL for thunks, whose frames nothing may write */
	u64 n_spills;
};

/*
 * The description of a guarded module, in its read-only data. The module's init and exit functions are stubs that call
 * guardrail_module_enter() and guardrail_module_leave() with it.
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
	const struct guardrail_range *init_only;	/* its data that is freed when init has returned */
	u64 n_init_only;
	const struct guardrail_own_function *targets;
	u64 n_targets;
	const struct guardrail_import *imports;		/* what it may call by pointer elsewhere */
	u64 n_imports;
	u32 ruled;			/* imports that are under a rule at each call, or that the user trusts */
	u32 imported;			/* all imports */
	u32 threshold;			/* percent of imports under a rule that policies which end calls want */
	u32 reserved;
	const struct guardrail_range *calls;		/* its thunks of calls to the kernel */
	u64 n_calls;
	const struct guardrail_range *entries;		/* its thunks of calls by the kernel */
	u64 n_entries;
	const struct guardrail_text *texts;		/* its code */
	u64 n_texts;
	const struct guardrail_entry *const *transacts;	/* its entries, if they can be transactions */
	u64 n_transacts;
};

/* The address of the tag of p, less (p >> GUARDRAIL_SLOT_SHIFT). While transactions are under way on the CPU, there is no right. */
DECLARE_PER_CPU(unsigned long, guardrail_table);
/* How many transactions are under way on the CPU. Thunks skip what they do for transactions alone where it is 0. */
DECLARE_PER_CPU(int, guardrail_transacting);

/*
 * Life of a guarded module. Returns -ENOEXEC if the description is invalid, -EKEYREJECTED if the module was not certified.
 * Returns -EPERM if too few of its imports are under a rule for the policy, -ENOMEM without memory for its rights, else
 * init's result.
 */
int guardrail_module_enter(const struct guardrail_module *module);
void guardrail_module_leave(const struct guardrail_module *module);

/* Slow paths of checks. @ip: the address of the checked instruction, for the report. */
void guardrail_write_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip);
void guardrail_range_slow(unsigned long addr, unsigned long len, unsigned long domain, unsigned long ip);
/* @offset: the address of a per-CPU variable as per-CPU pointers have it. */
void guardrail_percpu_slow(unsigned long offset, unsigned long size, unsigned long domain, unsigned long ip);
/* The store by an index lies outside of the variable that its operand names. */
void guardrail_beyond_slow(unsigned long addr, unsigned long size, unsigned long domain, unsigned long ip);
/* Returns what to call in place of @target: the thunk of an import, else @target. */
unsigned long guardrail_call_slow(unsigned long target, unsigned long domain, unsigned long ip);
/* An instruction that writes to a port, in a transaction. */
void guardrail_port_slow(unsigned long domain, unsigned long ip);

/*
 * Loops of guarded modules count this down at each turn. When it becomes negative they call the function, which sets it again.
 * Functions that may come to call themselves call it where the bits below of the stack pointer are 0. That is so in the lowest
 * 4 KiB of a stack of 16 KiB that is aligned to its size, and also at other places of larger stacks. The function returns unless the loop has
 * run for too long with interrupts off, or there is too little left of the stack.
 */
#define GUARDRAIL_STACK_MASK 0x3000
DECLARE_PER_CPU(int, guardrail_loops);
void guardrail_loop_slow(unsigned long domain, unsigned long ip);

/*
 * The number of objects on stacks of guarded modules that were handed to the kernel. If it is not 0, a function that takes
 * the address of its variables calls the function below before it leaves its frame. @end: where the frame ends.
 */
extern atomic_t guardrail_frames;
void guardrail_frame_slow(unsigned long end, unsigned long domain, unsigned long ip);

/*
 * Rights
 *
 * Unless a comment says otherwise, these may be called in any context but NMI. Those that return int return 0 or an error.
 * It is -ENOMEM if the table or a side table needs memory, and neither the reserve nor the page allocator has any.
 * It is -EINVAL if the range is not in the kernel's half, or the domain does not exist.
 * A grant that fails without table memory has granted nothing. A revocation that fails has left rights that it could not
 * split: never fewer than before.
 */

/* Populates the table for a range in advance; later grants there need no reserve. May sleep. */
int guardrail_prepare(unsigned long p, unsigned long n);

/* [p, p + n) becomes writable; the domain's objects that began there end. */
int guardrail_grant_fresh(u32 domain, unsigned long p, unsigned long n);
/* [p, p + n) becomes writable; objects stay objects. */
int guardrail_grant(u32 domain, unsigned long p, unsigned long n);
/* The domain may only read [p, p + n); its objects that began there end. */
int guardrail_revoke(u32 domain, unsigned long p, unsigned long n);
/* True if the domain may write every byte of [p, p + n). Reports nothing. */
bool guardrail_check_write(u32 domain, unsigned long p, unsigned long n);

struct guardrail_field {
	u32 offset;
	u32 size;			/* bytes; of a pointer to a function, the number of its type, or 0 */
};
/* The fields of an object become writable; it stays an object if it is one. */
int guardrail_grant_fields(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n);

/*
 * Kernel objects: [p, p + size) becomes read-only, and p the start of an object of the type (enum guardrail_kind) in state 0.
 * For one domain an address is an object of one type at a time: -EEXIST otherwise.
 *
 * Packets are created and destroyed more often than all others, so the tag alone marks them. All have the same type, size and
 * state.
 */
int guardrail_create_object(u32 domain, unsigned long p, unsigned long size, u32 type);
/* Destroys the packet at p, of which nothing may be written any more; false if there was none. */
bool guardrail_destroy_skb(u32 domain, unsigned long p);
/* True if p is an object of the type, in whatever state. */
bool guardrail_check_object(u32 domain, unsigned long p, u32 type);
/* The object's state, or -ENOENT. */
int guardrail_object_state(u32 domain, unsigned long p, u32 type);
/* Moves the object from one state to another, atomically: -ENOENT without the object, -EBUSY if it is in another state. */
int guardrail_move_object(u32 domain, unsigned long p, u32 type, u32 from, u32 to);
/* Destroys the object; its bytes stay read-only. -ENOENT without the object. */
int guardrail_destroy_object(u32 domain, unsigned long p, u32 type);
/* The address of the domain's first object that begins in [p, p + n), or 0: memory that holds a live object must not be freed. */
unsigned long guardrail_find_object(u32 domain, unsigned long p, unsigned long n);
/* The same for arguments of interrupt handlers. */
unsigned long guardrail_find_irq(u32 domain, unsigned long start, unsigned long size);

/* Ownership of the allocation [p, p + size) of kind @kind. It stands in a side table, so writes to the first bytes stay fast. */
int guardrail_own(u32 domain, unsigned long p, unsigned long size, u32 kind);
/* True if the domain owns the allocation that begins at p; stores its size unless @size is NULL. */
bool guardrail_check_owner(u32 domain, unsigned long p, u32 kind, unsigned long *size);
/* Gives the ownership up, once: -ENOENT without it. */
int guardrail_disown(u32 domain, unsigned long p, u32 kind);

/* The domain may call the function at p by pointer. */
int guardrail_grant_call(u32 domain, unsigned long p);
/*
 * True if it may: by right, because a module of the domain imports the function, or because a function of the kernel, or of a
 * module that is not guarded, begins there.
 */
bool guardrail_check_call(u32 domain, unsigned long p);

/* Something that a domain holds. */
struct guardrail_held {
	unsigned long start;
	unsigned long len;		/* bytes */
	u32 domain;
	u32 right;			/* GUARDRAIL_WRITE, _CALL, _OBJECT or _OWNER */
	u32 type;			/* of an object; the kind of an owned allocation; else 0 */
	u32 state;			/* of an object */
};
/*
 * Calls @each for all that a domain holds. First, by address: maximal writable ranges, call targets, packets, and buffers that
 * were not granted yet. Then, in no order: other objects and owned allocations. Looks only at populated parts of the table.
 * Holds no lock when it calls @each, which may change the rights; concurrent changes may be seen or not. Stops early when
 * @each returns other than 0, and returns that. May sleep.
 */
int guardrail_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data);
/* Revokes all that a domain holds. May sleep. */
void guardrail_revoke_all(u32 domain);

/*
 * Events
 *
 * A module can be rewritten to log what it does. Just before each event it calls this with the memory concerned and the
 * address of the instruction. The listener is called for each event, in any context that driver code runs in, with
 * preemption off.
 */
void guardrail_event(unsigned long addr, unsigned long size, unsigned long event, unsigned long ip);

typedef void (*guardrail_listener)(unsigned long addr, unsigned long size, unsigned int event, unsigned long ip);
/* -EBUSY if there is a listener already. */
int guardrail_listen(guardrail_listener listener);
/* After this returns the listener is not called any more. May sleep. */
void guardrail_unlisten(guardrail_listener listener);

/*
 * The border
 *
 * The module's calls to kernel functions that have actions lead to thunks in the module, and so do the kernel's calls to
 * functions of the module. A thunk keeps the arguments in a struct guardrail_call on the stack. It performs the actions before
 * and after the function, each by guardrail_do_NAME(action, call). Actions are read-only data of the module.
 */

/* Arguments and result of a call. The words' numbers are those that values name. */
struct guardrail_call {
	unsigned long args[6];		/* 0 to 5 */
	unsigned long result;		/* 6 */
	unsigned long second;		/* 7: the upper half of a result of 16 bytes */
	unsigned long caller;		/* 8: where the call returns to */
	unsigned long stack[];		/* 9...: arguments on the stack */
};

/* One step of the computation of a value. */
struct guardrail_term {
	u8 op;				/* enum guardrail_term_op */
	u8 n;
	u16 reserved[3];
	s64 operand;
};

/* How a value is computed from a call. */
struct guardrail_value {
	u8 kind;			/* enum guardrail_value_kind */
	u8 word;			/* of the call, for the kinds that take one */
	u16 n_terms;
	u32 reserved;
	union {
		s64 constant;
		const struct guardrail_term *terms;
	};
};

struct guardrail_action {
	u8 kind;			/* enum guardrail_action_kind */
	u8 when;			/* enum guardrail_when */
	u8 when_word;			/* for GUARDRAIL_NONZERO */
	u8 domain;
	u32 type;			/* of an object; the kind of an allocation; the number of a type of functions, or 0 */
	u32 from;			/* state of an object, or GUARDRAIL_ANY_STATE */
	u32 to;				/* state of an object */
	struct guardrail_value pointer;
	struct guardrail_value size;
	const struct guardrail_field *fields;
	u32 n_fields;
	u32 n_more;
	const char *function;		/* the name of the function that the action belongs to */
	const struct guardrail_value *more;	/* of a registration: values behind pointer and size */
	const char *inverse;		/* of a registration, or a call that is reversed: the function that undoes it */
	unsigned long target;		/* of a call that is deferred: its function */
};

/*
 * The actions; crates/abi/src/action.rs says what each does. A requirement that does not hold is reported. Actions that give
 * rights return -ENOMEM without memory for them, else 0. Before an entry into the module, -ENOMEM means that the function
 * must not be called. Elsewhere nothing can be done, and the runtime logs it.
 *
 * Functions guardrail_custom_NAME() have the same form and do what needs the kernel's headers. If annotations name one with
 * "instead", the kernel's function is called only if it returns 0; otherwise the call's result is what it has stored.
 */
int guardrail_do_grant(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_revoke(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_require_write(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_own(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_disown(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_grant_fields(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_revoke_fields(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_create_object(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_require_object(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_move_object(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_destroy_object(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_forget_object(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_require_call(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_require_calls(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_exit(const struct guardrail_action *action, struct guardrail_call *call);
/* The type of these two is the number of values; "from" has a bit for each that tells registrations apart. */
int guardrail_do_registers(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_unregisters(const struct guardrail_action *action, struct guardrail_call *call);
/*
 * For transactions alone. The first returns 1 if the call is made when the transaction is over, and not now. The values of
 * the second are those of a registration.
 */
int guardrail_do_defer(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_reverse(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_touch(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_save(const struct guardrail_action *action, struct guardrail_call *call);
int guardrail_do_irrevocable(const struct guardrail_action *action, struct guardrail_call *call);

/* For the code of guardrail_custom_NAME(). */
/* True if the action is to be performed. */
bool guardrail_applies(const struct guardrail_action *action, const struct guardrail_call *call);
/* Computes a value; false if something could not be read, and then the action is left out. */
bool guardrail_value(const struct guardrail_value *value, const struct guardrail_call *call, unsigned long *result);
/*
 * Reports that the domain passed something to the action's function without the right to. @what stands before the address,
 * such as "write of 64 bytes at". @holds, @needs: as in struct guardrail_violation.
 */
void guardrail_refuse(const struct guardrail_action *action, const struct guardrail_call *call, const char *what,
		      unsigned long addr, const char *holds, const char *needs);
/* True if the domain may write [p, p + n), on its own part of the stack or by right; reports a violation otherwise. */
bool guardrail_require_write(const struct guardrail_action *action, const struct guardrail_call *call,
			     unsigned long p, unsigned long n);

/* An entry point: a function of the module that the kernel calls. */
struct guardrail_entry {
	u32 domain;
	u32 flags;			/* enum guardrail_entry_flags */
	long dead;			/* what it returns if it is not called */
	const char *function;		/* its name */
	u32 pointers;			/* words of the call that are pointers to structures and functions, a bit each */
	u32 kept;			/* those among them that the domain may pass back after the call */
};

/* The state at the start of an entry, so that it can be ended from within. guardrail_enter() stores the first ten in assembly. */
struct guardrail_saved {
	unsigned long rbx, rbp, r12, r13, r14, r15;
	unsigned long sp;			/* of the thunk, when guardrail_enter() has returned */
	unsigned long ip;			/* where guardrail_enter() returns to */
	unsigned long flags;			/* of the processor */
	unsigned long unwound;			/* the entry was ended from within */
	int preempt_count;
	int rcu_nesting;			/* on kernels that count RCU readers separately */
	int pagefault_disabled;
	int migration_disabled;
};

/*
 * What a thunk puts on the stack for an entry into the module. The function's own part of the stack begins below it. The module
 * must not write the record, nor what its callers have above it.
 */
struct guardrail_record {
	void *task;			/* the note of the current task, of which this is the innermost record */
	struct guardrail_record *previous;
	unsigned long previous_limit;
	const struct guardrail_entry *entry;
	struct guardrail_saved saved;
	struct guardrail_call call;
};

/*
 * Before and after the function. If guardrail_enter() returns a negative number the function must not be called: the domain is
 * dead, or there is no memory for the note. The thunk then returns the call's result without guardrail_leave().
 *
 * If the entry is ended from within (guardrail_unwind()), guardrail_enter() returns once more, with 1. The thunk then performs
 * the actions after the function, calls guardrail_leave(), and returns the entry's error value.
 */
int guardrail_enter(const struct guardrail_entry *entry, struct guardrail_record *record) __attribute__((returns_twice));
void guardrail_leave(struct guardrail_record *record);

/*
 * Ends the current task's innermost entry if it is one into this domain: goes on in its thunk, which returns the entry's error
 * value to its caller. Called from code of the domain, or from what it has called, with no lock held. Returns if there is no
 * such entry.
 */
void guardrail_unwind(u32 domain);

/* Refuses entries into the domain until its next module is loaded. */
void guardrail_kill(u32 domain);
bool guardrail_is_dead(u32 domain);

/* A violation to report: the log line after "guardrail: violation: ". */
struct guardrail_violation {
	const char *what;	/* such as "write of 8 bytes at" */
	unsigned long addr;	/* stands behind it */
	unsigned long ip;	/* the instruction that did it */
	u32 domain;
	const char *holds;	/* the rights that the domain has */
	const char *needs;	/* the right that it lacks */
};
void guardrail_report(const struct guardrail_violation *violation);
/* The number of violations of a domain since guardrail.ko was loaded. */
unsigned long guardrail_violations(u32 domain);

/* What the rights cost. */
struct guardrail_usage {
	unsigned long table_pages;	/* pages of tags */
	unsigned long tree_pages;	/* pages of the page tables that map them */
	unsigned long reserve;		/* free pages kept for grants that cannot sleep */
	unsigned long conflicts;	/* slots in the conflict table */
	unsigned long records;		/* objects and owned allocations */
	unsigned long inside;		/* tasks that are in guarded modules */
	unsigned long masks;		/* sets of bytes that tags stand for, of all domains */
};
void guardrail_usage(struct guardrail_usage *usage);
#endif /* __ASSEMBLY__ */
#endif /* GUARDRAIL_ABI_H */
