/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the parts of guardrail.ko know of each other. */
#ifndef GUARDRAIL_INTERNAL_H
#define GUARDRAIL_INTERNAL_H

#include <linux/kernel.h>
#include <linux/mempool.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <asm/asm.h>
#include <asm/stacktrace.h>

#include "guardrail_abi.h"

#undef pr_fmt
#define pr_fmt(fmt) "guardrail: " fmt

/* Small things of one size, for contexts that cannot sleep (pool.c). */
struct guardrail_pool {
	struct kmem_cache *cache;
	mempool_t *reserve;
};
int __init guardrail_pool_init(struct guardrail_pool *pool, const char *name, size_t size, int reserve);
void guardrail_pool_exit(struct guardrail_pool *pool);
/* NULL where neither the allocator nor the reserve has any. */
void *guardrail_pool_alloc(struct guardrail_pool *pool);
void guardrail_pool_free(struct guardrail_pool *pool, void *object);

/* The kernel's half of the address space. */
extern unsigned long guardrail_kernel_half;
#define KERNEL_HALF guardrail_kernel_half

/* A word of entries that are all the same. */
#define EIGHT(entry) ((u64)(entry) * 0x0101010101010101ULL)

/* The domain's whole-slot right to write. */
#define WRITABLE(domain) GUARDRAIL_ENTRY(domain, GUARDRAIL_WRITE)

static inline unsigned long entry_of(unsigned long p)
{
	return (p >> GUARDRAIL_SLOT_SHIFT) + guardrail_table;
}

/* The address of the slot that an entry is for. */
static inline unsigned long slot_of(unsigned long entry)
{
	return (entry - guardrail_table) << GUARDRAIL_SLOT_SHIFT;
}

/* The entry at this address, or -1 where the table is not populated. */
static inline int entry_peek(unsigned long entry)
{
	int value = -1;

	asm volatile("1:	movzbl (%1), %0\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "+r" (value) : "r" (entry) : "memory");
	return value;
}

static inline bool is_domain(u32 domain)
{
	return domain >= 1 && domain < GUARDRAIL_DOMAINS;
}

/* True for a range of one byte or more in the kernel's half. */
static inline bool is_kernel_range(unsigned long p, unsigned long n)
{
	return p >= KERNEL_HALF && n && p + n - 1 >= p;
}

/* The part of a slot that the bytes [p, end) have, as a bit for each byte; p is in the slot. */
static inline u8 slot_mask(unsigned long p, unsigned long end)
{
	unsigned int from = p % GUARDRAIL_SLOT;
	unsigned long to = end - (p - from);

	return (u8)(0xff << from) & (to >= GUARDRAIL_SLOT ? 0xff : (u8)~(0xff << to));
}

/* symbols.c: what the kernel does not export. */
int __init guardrail_symbols_find(void);
struct vm_struct *guardrail_get_vm_area(unsigned long size, unsigned long flags);
void guardrail_flush_tlb(unsigned long start, unsigned long end);
bool guardrail_stack_of(unsigned long addr, struct stack_info *info);
struct module *guardrail_module_at(unsigned long addr);
bool guardrail_is_code(unsigned long addr);
/* Where the kernel, or a module that is there, has something of this name; 0 where it does not tell. In process context. */
unsigned long guardrail_find_symbol(const char *name);
extern struct mm_struct *guardrail_init_mm;

/* table.c: the memory of the table. */
int __init guardrail_table_init(void);
void guardrail_table_exit(void);
int guardrail_populate(unsigned long first, unsigned long last);
void guardrail_table_usage(struct guardrail_usage *usage);
/* How often the reserve had no page. */
unsigned long guardrail_dry(void);
/* Calls @each with the address of every populated page of the table, by address, until it returns other than 0. */
int guardrail_each_page(int (*each)(unsigned long page, void *data), void *data);

/* The entries from @first to @last get memory where they have none. */
static inline int populate(unsigned long first, unsigned long last)
{
	if (likely(!((first ^ last) & PAGE_MASK) && entry_peek(first) >= 0))
		return 0;
	return guardrail_populate(first, last);
}

/* mask.c: sets of bytes that an entry can say to be writable. */
void __init guardrail_masks_init(void);
/* The bytes that an entry says to be writable, by the domain that it names. */
extern u8 guardrail_writes[256];
/*
 * The entry that says just these bytes to be writable: 0 for none, GUARDRAIL_CONFLICT where the domain has @most masks, and this is not one.
 */
u8 guardrail_mask_entry(u32 domain, u8 mask, unsigned int most);
void guardrail_masks_forget(u32 domain);
/* Another number each time that the domain's masks were forgotten. */
extern u32 guardrail_masks_versions[GUARDRAIL_DOMAINS];
static inline u32 guardrail_masks_version(u32 domain)
{
	return READ_ONCE(guardrail_masks_versions[domain]);
}
/* The number of masks that the domain has. */
unsigned int guardrail_masks_given(u32 domain);

/* fields.c: fields of structures. */
/* The fields of a list that does not change get WRITE or READ; what is an object stays one. */
int guardrail_fields_change(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n, u8 right);
void guardrail_fields_forget(const struct module *module);
/* The entries of a structure at p of which the domain may write these fields, so many slots; false where entries cannot say it. */
bool guardrail_fields_entries(u32 domain, unsigned long p, const struct guardrail_field *fields, u32 n, u8 *entries, unsigned int slots);

/* skb.c: network frames. */
static inline u8 skb_entry(u32 domain)
{
	return GUARDRAIL_ENTRY(domain, GUARDRAIL_SKB);
}
bool guardrail_is_skb_slowly(u32 domain, unsigned long p);
/* True where a frame is known by its entry alone, as nearly all are. */
static __always_inline bool is_usual_skb(u32 domain, unsigned long p)
{
	return p >= KERNEL_HALF && !(p % GUARDRAIL_SLOT) && entry_peek(entry_of(p)) == skb_entry(domain);
}

static inline bool guardrail_is_skb(u32 domain, unsigned long p)
{
	return likely(is_usual_skb(domain, p)) || guardrail_is_skb_slowly(domain, p);
}
/* A frame begins or ends there, and what may be written stays as it is: -EEXIST, -ENOENT where it has done so. */
int guardrail_skb_mark(u32 domain, unsigned long p, bool begins);
void guardrail_skbs_forget(const struct module *module);

/* conflict.c: parts of slots, and slots of several domains. */
int __init guardrail_conflict_init(void);
void guardrail_conflict_exit(void);
/* How one domain's rights to the bytes of a slot change: the bytes in @mask get @right. */
struct slot_change {
	u32 domain;
	u8 mask;
	u8 right;
	bool keep_objects;	/* writable bytes at which an object begins go on being its beginning */
	bool many;		/* other slots will change in the same way: all masks may be used up for it */
};
int guardrail_slot_change(unsigned long entry, const struct slot_change *change);
bool guardrail_slot_holds(unsigned long entry, u32 domain, u8 mask, u8 right);
/* The rights of the domain to the bytes of the slot. */
void guardrail_slot_rights(unsigned long entry, u32 domain, u8 rights[GUARDRAIL_SLOT]);
void guardrail_conflict_forget(u32 domain);
unsigned long guardrail_conflict_count(void);
/* True for rights that are more than a set of bytes that may be written: something begins with the slot. */
static inline bool is_mark(u8 right)
{
	return (right >= GUARDRAIL_ICALL && right <= GUARDRAIL_OBJECT_WRITE) || right == GUARDRAIL_SKB;
}

/* True where a byte is the first of an object. */
static inline bool right_objects(u8 right)
{
	return right == GUARDRAIL_OBJECT || right == GUARDRAIL_OBJECT_WRITE || right == GUARDRAIL_SKB;
}

/* True where a right lets its byte be written. */
static inline bool right_writes(u8 right)
{
	return right == GUARDRAIL_WRITE || right == GUARDRAIL_OBJECT_WRITE;
}

/* rights.c: ranges. */
/* [p, p + n) gets WRITE or READ; what objects began there are forgotten, or kept. The table is populated where WRITE comes. */
int guardrail_range_change(u32 domain, unsigned long p, unsigned long n, u8 right, bool keep_objects);
/* The first byte of [p, p + n) that the domain may not write, or p + n. */
unsigned long guardrail_first_denied(u32 domain, unsigned long p, unsigned long n);

/* buffer.c: large buffers that are granted when they are written. */
/* The domain writes to the byte at @addr: if a buffer has it, all of that is granted, and becomes what other memory is. */
bool guardrail_buffer_grant(u32 domain, unsigned long addr);
/* The buffer that is the domain's to release and has the byte at @addr; false where there is none. */
bool guardrail_buffer_owned(u32 domain, unsigned long addr, struct guardrail_range *found);

/* object.c: objects and owned allocations. */
int __init guardrail_object_init(void);
void guardrail_object_exit(void);
void guardrail_object_forget(u32 domain, unsigned long p);
void guardrail_objects_forget_all(u32 domain);
/* Puts an object into a state whatever state it is in; -ENOENT where there is none of this type. */
int guardrail_put_object(u32 domain, unsigned long p, u32 type, u32 to);
/* Like guardrail_set_object(); what is an object there already begins anew, or is one of this type instead. */
int guardrail_renew_object(u32 domain, unsigned long p, unsigned long size, u32 type);
/* What was an object a moment ago is one again, in its first state; what may be written of it stays as it is. */
int guardrail_keep_object(u32 domain, unsigned long p, unsigned long size, u32 type);
/* Type and state of the object that begins at p; false where there is none. */
bool guardrail_object_any(u32 domain, unsigned long p, u32 *type, u32 *state);
/* A number is noted of an allocation of a kind that the domain owns; without one, and without the allocation, it is 0. */
void guardrail_owner_note(u32 domain, unsigned long p, u32 kind, u32 what);
u32 guardrail_owner_noted(u32 domain, unsigned long p, u32 kind);
/* The domain does not own what begins at p any more, of whatever kind that is. */
void guardrail_forget_owner(u32 domain, unsigned long p);
int guardrail_objects_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data);
unsigned long guardrail_object_count(void);
/* What the domain owns becomes more, or less. */
extern atomic_long_t guardrail_owned[GUARDRAIL_DOMAINS];
static inline void guardrail_count_owned(u32 domain, long more)
{
	atomic_long_add(more, &guardrail_owned[domain]);
}
/* How much memory the domain owns, by all that it has allocated. */
unsigned long guardrail_owned_bytes(u32 domain);

/* action.c */
/* The function of the action was given what is no object of this type, or in no such state. */
void guardrail_refuse_object(const struct guardrail_action *action, const struct guardrail_frame *frame, unsigned long p, u32 type,
			     u32 state);

/* entry.c: who is in a guarded module. */
int __init guardrail_entry_init(void);
void guardrail_entry_exit(void);
/* The innermost entry of the current task, or NULL. */
struct guardrail_record *guardrail_innermost(void);
/* The current task's locks and its innermost entry, with interrupts off; NULL where it is in no module. */
struct guardrail_locks *guardrail_locks(const struct guardrail_record **innermost);
/* The current task runs, and is interrupted: its innermost entry, and how often that was so since it has come, or has slept. */
struct guardrail_running {
	const struct guardrail_record *record;
	unsigned int looks;
};
/* False where it is in no module. In hard interrupts. */
bool guardrail_running(struct guardrail_running *running);
/* Where it loops. */
void guardrail_note_loop(unsigned long ip);
unsigned long guardrail_looping(void);
/* The address on the stack from which on the code that runs may not write, or 0 where it is in no module, or may write all. */
unsigned long guardrail_stack_limit(void);
/* A handler of interrupts in a guarded module. */
struct guardrail_interrupt {
	unsigned long irq;			/* its first argument */
	u32 domain;
	const char *function;
};
/* The handler that a processor is in; false where it is in none. */
bool guardrail_interrupt_on(unsigned int cpu, struct guardrail_interrupt *found);
/* The current task goes away, and has left all modules. */
void guardrail_forget_task(void);
/* The number of tasks that are in modules. */
unsigned long guardrail_inside(void);
/* True where some task is in a module of the domain. */
bool guardrail_inside_domain(u32 domain);
/* True where p lies on a stack below where some task, or what has interrupted it, has entered the domain. */
bool guardrail_on_stack_of(u32 domain, unsigned long p);
void guardrail_revive(u32 domain);
/* The domains that are dead, a bit each. */
extern unsigned long guardrail_dead_domains;
/* Those in which entries were ended since they began: what these had taken was not given back. */
extern unsigned long guardrail_ended_domains;
static inline bool is_dead(u32 domain)
{
	return READ_ONCE(guardrail_dead_domains) >> domain & 1;
}

/* locks.c: locks that entries take. */
struct guardrail_lock {
	const struct guardrail_record *record;	/* of the entry */
	unsigned long p;
	unsigned long ip;			/* who took it, or gave it back */
	u32 kind;
	bool taken;				/* else it was given back without having been taken */
};
/* Those of a task, the latest ones last. */
struct guardrail_locks {
	unsigned int n;
	unsigned int more;			/* for which there was no room */
	struct guardrail_lock lock[8];
};
/* Moves those of an entry of the current task to @own, the latest ones first. */
void guardrail_locks_of(const struct guardrail_record *record, struct guardrail_locks *own);
/*
 * Locks, interrupts, preemption and what else is counted become what they were when the entry began. True where one of the locks spins.
 */
bool guardrail_locks_back(const struct guardrail_locks *own, const struct guardrail_record *record);
/* The entry returns with these. */
void guardrail_locks_left(const struct guardrail_record *record);

/* unwind.c: entries that are ended from within. */
/*
 * A thread of a dead domain comes by here with a frame of its thunk: its entry is ended, unless the frame is that of the entry itself.
 */
void guardrail_crossing(u32 domain, const struct guardrail_frame *frame);
/* Of struct guardrail_saved what is not a register. */
static inline void guardrail_save(struct guardrail_saved *saved)
{
	saved->unwound = 0;
	saved->preempt_count = preempt_count();
#ifdef CONFIG_PREEMPT_RCU
	saved->rcu_nesting = current->rcu_read_lock_nesting;
#endif
	saved->pagefault_disabled = current->pagefault_disabled;
	saved->migration_disabled = current->migration_disabled;
}

/*
 * An entry that was ended has been left. Where it was called by the domain itself, and not by the kernel, the entry in which that was done is ended as
 * well, and this does not return: who has called it would go on as if all were well.
 */
void guardrail_unwind_caller(const struct guardrail_record *ended);
/* What is counted for the current task or processor becomes what it was when the entry began. */
void guardrail_put_back(const struct guardrail_saved *saved);
/* True where this innermost entry can be ended by code that runs with this stack pointer. */
bool guardrail_can_end(const struct guardrail_record *record, unsigned long sp);
int guardrail_enter_noted(const struct guardrail_entry *entry, struct guardrail_record *record);

/* fault.c: faults of the processor. */
/* The interrupted code, the module's or called by it at @ip, is to end its innermost entry when it goes on; false where that is not possible. */
bool guardrail_divert(struct pt_regs *regs, const struct guardrail_record *record, const char *what, unsigned long ip);
int __init guardrail_fault_init(void);
void guardrail_fault_exit(void);

/* watchdog.c: entries without an end. */
int __init guardrail_watchdog_init(void);
void guardrail_watchdog_exit(void);

/* Ends the entry that this processor is in, or has it end when what it has called returns; false where there is none that can be ended. */
bool guardrail_end_running(struct pt_regs *regs);

/* stuck.c: processors that run nothing else. */
int __init guardrail_stuck_init(void);
void guardrail_stuck_exit(void);
void guardrail_stuck_online(unsigned int cpu);
/* Looks at another processor, from a timer of this one; true where that is to be done again soon. @seconds: after which one is stuck; 0 for never. */
bool guardrail_stuck_look(unsigned int seconds);

/* recover.c: domains that are killed. */
int __init guardrail_recover_init(void);
void guardrail_recover_exit(void);
/* Kills the domain and begins its recovery, unless it is dead already. In any context but NMIs. */
void guardrail_recover(u32 domain, const char *why);
/* restore_fs.c: file systems, where their domain is killed. */
/* An entry was ended, or refused: what the kernel needs all the same is done, and the system call is made again after the recovery. */
void guardrail_fs_left(const struct guardrail_record *record, bool ended);
/* True where the domain has something mounted, or had. */
bool guardrail_has_fs(u32 domain);
/* A module of a dead domain goes: what the domain holds is released without it. @gone: set when nobody looks at the module any more. */
void guardrail_clear_dead(u32 domain, bool *gone);

/* report.c */
/* What the domain has at a byte. */
const char *guardrail_held_at(unsigned long addr, u32 domain);
void guardrail_report_write(unsigned long addr, unsigned long size, unsigned long first, u32 domain, unsigned long ip);
void guardrail_report_icall(unsigned long target, u32 domain, unsigned long ip);
/* An entry has returned with a lock. True where it is to be given back. */
bool guardrail_report_lock(const struct guardrail_lock *lock, const char *kind, const struct guardrail_entry *entry);
/* True where the policy is to end the entry in which something is wrong. */
bool guardrail_ends_entries(void);
/* True where it is that, or to end the thread. */
bool guardrail_ends_threads(void);
/* An interrupt comes again and again, and was disabled. */
void guardrail_report_storm(u32 domain, const char *function, unsigned long irq);
/* An entry of this function runs and runs. */
void guardrail_report_loop(u32 domain, const char *function, unsigned int seconds, unsigned long ip);
/* The processor has found something wrong at @ip, in an entry of the domain that can be ended: tells it, and does not return. */
void guardrail_faulted(u32 domain, const char *what, unsigned long ip);
int guardrail_violations_show(struct seq_file *seq, void *unused);
void guardrail_report_exit(void);

/* task.c */
/* True for a store to a task's count of references, which the domain may make from then on. */
bool guardrail_is_reference(u32 domain, unsigned long addr, unsigned long n);
/* It may not any more. */
void guardrail_tasks_forget(u32 domain);

/* slow.c */
struct slow_counts {
	unsigned long write, range, percpu, icall, part, stack, denied;
};
DECLARE_PER_CPU(struct slow_counts, guardrail_slow_counts);

/* How often there was an event of this number, on all CPUs. */
unsigned long guardrail_event_count(unsigned int event);
/* True where [addr, addr + n) lies in the part of the current stack that guarded code may use. */
bool guardrail_on_stack(unsigned long addr, unsigned long n);
/* And nothing of it has been handed to the kernel. */
bool guardrail_may_write_stack(unsigned long addr, unsigned long n);

/* module.c */
bool guardrail_is_guarded(unsigned long addr);
/* Modules of domains were kept; true for an address in one of this domain's. */
DECLARE_STATIC_KEY_FALSE(guardrail_keeps);
bool guardrail_is_kept(u32 domain, const void *p);
/* True where the domain has a module of this name, which has been initialized. */
bool guardrail_module_is_there(u32 domain, const char *name);
/* The names of the domain's modules; empty where it has none. */
void guardrail_domain_name(u32 domain, char *text, size_t size);
/* What a domain holds, counted. */
struct held_counts {
	unsigned long ranges, bytes, targets, objects, owned, owned_bytes;
};
void guardrail_count_held(u32 domain, struct held_counts *counts);

/* quota.c: how much memory domains may own. */
/* The domain has come to own an allocation: a violation if that is more than it may. */
void guardrail_ask_quota(const struct guardrail_action *action, const struct guardrail_frame *frame, unsigned long p, unsigned long size);
extern unsigned int guardrail_quota;
static inline void guardrail_check_quota(const struct guardrail_action *action, const struct guardrail_frame *frame, unsigned long p,
					 unsigned long size)
{
	if (unlikely(READ_ONCE(guardrail_quota)))
		guardrail_ask_quota(action, frame, p, size);
}

/* debugfs.c */
void __init guardrail_debugfs_init(void);
void guardrail_debugfs_exit(void);

#endif /* GUARDRAIL_INTERNAL_H */
