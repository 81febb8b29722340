// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Entries. Each leaves a record on the stack, above all that the module's function uses. The
 * innermost record of a task is in its note, which is found by the task. So a task may sleep in the
 * module and continue on another CPU, and interrupts nest on the task that they interrupt.
 */
#include <linux/hash.h>
#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "base/limits.h"
#include "base/pool.h"
#include "domain/counts.h"
#include "domain/entry.h"
#include "domain/frames.h"
#include "domain/module.h"
#include "domain/ops.h"
#include "domain/sleepers.h"
#include "domain/stack.h"
#include "domain/thread.h"
#include "domain/unwind.h"
#include "rights/received.h"
#include "rights/tag.h"

#define CELL_BITS 8
#define HASH_BITS 6
#define RESERVE 64
/* The most entries that a task nests. */
#define MAX_DEPTH 32

/**
 * struct note - A task that is in guarded modules. Only the task itself and what interrupts it use the note.
 * @node: Place in its bucket, unless it lies in a cell.
 * @task: The task; NULL in a free cell.
 * @born: When the task was born: another may get the same memory.
 * @top: Record of its innermost entry.
 * @limit: Where the writable part of its stack ends; 0 for no limit.
 * @locks: Locks of its entries.
 * @thread: What its entries have changed of the task.
 * @transaction: Its innermost transaction, or NULL.
 * @looks: How often the watchdog found it running since it entered or last slept.
 * @slept: How often it had slept then.
 * @looping: Where it loops.
 */
struct note {
	struct hlist_node node;
	struct task_struct *task;
	u64 born;
	struct guardrail_record *top;
	unsigned long limit;
	struct guardrail_locks locks;
	struct guardrail_thread thread;
	struct guardrail_transaction *transaction;
	unsigned int looks;
	unsigned long slept;
	unsigned long looping;
};

/*
 * Notes in cells: nearly every task finds one of its two cells free. Only the task takes and frees its cell, with
 * interrupts off, so that needs no lock, and an interrupt never finds a note half made.
 */
static struct note cells[(1 << CELL_BITS) + 1];
/* The last cell is no task's. An entry that gets no note where it goes on ends with this one. */
#define NO_NOTE (&cells[1 << CELL_BITS])
/* Entries of each domain that wait for a message, and so are in no task. */
static atomic_t waiting[GUARDRAIL_DOMAINS];

/*
 * The notes of all other tasks, in buckets. @lock protects @notes: taken with interrupts off, in NMIs only if it is free;
 * nothing nests inside.
 */
static struct {
	raw_spinlock_t lock;
	struct hlist_head notes;
} table[1 << HASH_BITS];
static atomic_long_t n_others;

static struct guardrail_pool pool;
unsigned long guardrail_dead_domains;
unsigned long guardrail_ended_domains;
DEFINE_STATIC_KEY_FALSE(guardrail_transacts);

/* Starts a new note of the current task. */
static void begin(struct note *note)
{
	note->born = current->start_boottime;
	note->top = NULL;
	note->limit = 0;
	note->locks.n = note->locks.more = 0;
	note->thread.noted = false;
	note->transaction = NULL;
	note->looks = 0;
}

static struct note *cell_of(const struct task_struct *task, unsigned int n)
{
	return &cells[hash_ptr((void *)task, CELL_BITS) ^ n];
}

static unsigned int bucket_of(const struct task_struct *task)
{
	return hash_ptr((void *)task, HASH_BITS);
}

static noinline struct note *find_other(void)
{
	unsigned int bucket = bucket_of(current);
	unsigned long flags;
	struct note *note;

	/* An NMI may have interrupted the holder of the lock, and then finds nothing. */
	if (!raw_spin_trylock_irqsave(&table[bucket].lock, flags)) {
		if (in_nmi())
			return NULL;
		raw_spin_lock_irqsave(&table[bucket].lock, flags);
	}
	hlist_for_each_entry(note, &table[bucket].notes, node)
		if (note->task == current)
			break;
	raw_spin_unlock_irqrestore(&table[bucket].lock, flags);
	return note;
}

/* Finds the note of the current task, with interrupts off. A note of a task that ended inside a module starts anew. */
static __always_inline struct note *find(void)
{
	struct note *note = cell_of(current, 0);

	if (READ_ONCE(note->task) != current)
		note = cell_of(current, 1);
	if (READ_ONCE(note->task) != current)
		note = atomic_long_read(&n_others) ? find_other() : NULL;
	if (note && note->born != current->start_boottime)
		begin(note);
	return note;
}

static noinline struct note *new_other(void)
{
	unsigned int bucket = bucket_of(current);
	struct note *note;

	note = guardrail_pool_alloc(&pool);
	if (!note)
		return NULL;
	note->task = current;
	begin(note);
	raw_spin_lock(&table[bucket].lock);
	hlist_add_head(&note->node, &table[bucket].notes);
	raw_spin_unlock(&table[bucket].lock);
	atomic_long_inc(&n_others);
	return note;
}

/* Makes a note for the current task, which has none, with interrupts off. */
static __always_inline struct note *new_note(void)
{
	unsigned int n;

	for (n = 0; n < 2; n++) {
		struct note *note = cell_of(current, n);

		if (READ_ONCE(note->task) || cmpxchg(&note->task, NULL, current))
			continue;
		begin(note);
		return note;
	}
	return new_other();
}

static void free_note(struct note *note)
{
	unsigned int bucket = bucket_of(current);

	if (note >= cells && note < cells + ARRAY_SIZE(cells)) {
		note->top = NULL;
		smp_store_release(&note->task, NULL);
		return;
	}
	raw_spin_lock(&table[bucket].lock);
	hlist_del(&note->node);
	raw_spin_unlock(&table[bucket].lock);
	atomic_long_dec(&n_others);
	guardrail_pool_free(&pool, note);
}

/*
 * True where the module itself has called the entry, by a pointer or through the kernel. The entry may then write of
 * its callers' stack what these may.
 */
static __always_inline bool is_own_call(const struct guardrail_record *record)
{
	const struct guardrail_record *previous = record->previous;

	return previous && record->entry && previous->entry && previous->entry->domain == record->entry->domain;
}

bool guardrail_called_itself(const struct guardrail_record *record)
{
	return is_own_call(record) && guardrail_is_in_domain(record->entry->domain, record->call.caller);
}

/* Records an entry of the current task; false where there is no memory for a note. */
static __always_inline bool push(struct guardrail_record *record, bool callers_stack)
{
	unsigned long flags;
	struct note *note;

	local_irq_save(flags);
	note = find() ?: new_note();
	if (note) {
		record->task = note;
		record->previous = note->top;
		record->previous_limit = note->limit;
		note->top = record;
		if (!callers_stack)
			note->limit = (unsigned long)record;
		else if (!is_own_call(record))
			note->limit = 0;
	}
	local_irq_restore(flags);
	return note;
}

static __always_inline void pop(struct guardrail_record *record)
{
	struct note *note = record->task;
	unsigned long flags;

	if (record->previous) {
		note->limit = record->previous_limit;
		WRITE_ONCE(note->top, record->previous);
		return;
	}
	local_irq_save(flags);
	free_note(note);
	local_irq_restore(flags);
}

/* True where the entry is refused: the domain is dead, or the module is a kept one. */
static __always_inline bool is_refused(const struct guardrail_entry *entry)
{
	return is_dead(entry->domain) || (static_branch_unlikely(&guardrail_keeps) && guardrail_is_kept(entry->domain, entry));
}

/* Notes the arguments that the domain may pass back: of those that the kernel passed. */
static __always_inline void receive(const struct guardrail_entry *entry, const struct guardrail_record *record)
{
	unsigned long words = entry->kept;

	if (words && guardrail_called_itself(record))
		return;
	for (; words; words &= words - 1)
		guardrail_receive(entry->domain, ((const unsigned long *)&record->call)[__ffs(words)], GUARDRAIL_FROM_ENTRY);
}

/* Stores the state that is not in registers. */
static void save(struct guardrail_saved *saved)
{
	saved->unwound = 0;
	saved->preempt_count = preempt_count();
#ifdef CONFIG_PREEMPT_RCU
	saved->rcu_nesting = current->rcu_read_lock_nesting;
#endif
	saved->pagefault_disabled = current->pagefault_disabled;
	saved->migration_disabled = current->migration_disabled;
}

int guardrail_enter_noted(const struct guardrail_entry *entry, struct guardrail_record *record)
{
	record->entry = entry;
	save(&record->saved);
	/* What the module would call from there takes locks. */
	if (unlikely(record->saved.preempt_count & NMI_MASK)) {
		guardrail_limit_reached(GUARDRAIL_LIMIT_NMI);
		record->call.result = entry->dead;
		record->call.second = 0;
		return -EIO;
	}
	if (likely(!is_refused(entry) && push(record, entry->flags & GUARDRAIL_ENTRY_CALLERS_STACK))) {
		if (likely(!is_refused(entry))) {
			if (static_branch_unlikely(&guardrail_transacts))
				guardrail_domain_ops->transact_begins(record);
			receive(entry, record);
			/* The module has called itself by a pointer, or through the kernel, too often. */
			if (unlikely(record->previous && guardrail_stack_ends()))
				guardrail_domain_ops->faulted(entry->domain, "stack overflow", record->call.caller);
			return 0;
		}
		/* The domain was killed before this entry could be seen. */
		pop(record);
	} else if (!is_refused(entry)) {
		guardrail_limit_reached(GUARDRAIL_LIMIT_NOTES);
	}
	record->call.result = entry->dead;
	record->call.second = 0;
	guardrail_domain_ops->entry_over(record, false);
	return -EIO;
}

void guardrail_leave(struct guardrail_record *record)
{
	struct note *note = record->task;
	bool locked = false;

	if (unlikely(note->locks.n))
		locked = guardrail_locks_left(record);
	/* A lock that is left has been reported. */
	if (unlikely(counts_differ(&record->saved)) && !locked)
		guardrail_counts_left(record);
	if (unlikely(guardrail_any_frames()))
		guardrail_frames_left(record);
	if (unlikely(note->thread.noted) && !record->previous && in_task())
		guardrail_thread_left(&note->thread, record);
	if (unlikely(note->transaction))
		guardrail_domain_ops->transact_ends(record);
	pop(record);
	if (unlikely(is_dead(record->entry->domain)))
		guardrail_sleeper_left();
	if (unlikely(record->saved.unwound))
		guardrail_unwind_caller(record);
}
EXPORT_SYMBOL_GPL(guardrail_leave);

void guardrail_entry_detach(struct guardrail_record *record)
{
	atomic_inc(&waiting[record->entry->domain]);
	pop(record);
}

bool guardrail_entry_attach(struct guardrail_record *record)
{
	bool noted = push(record, record->entry->flags & GUARDRAIL_ENTRY_CALLERS_STACK);

	atomic_dec(&waiting[record->entry->domain]);
	if (noted)
		return true;
	guardrail_limit_reached(GUARDRAIL_LIMIT_NOTES);
	record->task = NO_NOTE;
	record->previous = NULL;
	return false;
}

struct guardrail_locks *guardrail_locks(const struct guardrail_record **innermost)
{
	struct note *note = find();

	*innermost = note ? note->top : NULL;
	return *innermost ? &note->locks : NULL;
}

struct guardrail_transaction **guardrail_transaction_slot(struct guardrail_record **innermost)
{
	struct note *note = find();

	*innermost = note ? note->top : NULL;
	return *innermost ? &note->transaction : NULL;
}

struct guardrail_thread *guardrail_thread(void)
{
	struct note *note = find();

	return note && note->top ? &note->thread : NULL;
}

/* Interrupts leave the note as they find it, so this needs no protection. A task without a note has no limit. */
unsigned long guardrail_stack_limit(void)
{
	const struct note *note = find();

	return note ? note->limit : 0;
}

struct guardrail_record *guardrail_innermost(void)
{
	struct guardrail_record *top;
	unsigned long flags;
	struct note *note;

	local_irq_save(flags);
	note = find();
	top = note ? note->top : NULL;
	local_irq_restore(flags);
	return top;
}

void guardrail_forget_task(void)
{
	unsigned long flags;
	struct note *note;

	local_irq_save(flags);
	note = find();
	if (note)
		free_note(note);
	local_irq_restore(flags);
	guardrail_frames_end(current_stack_pointer, (unsigned long)task_stack_page(current) + THREAD_SIZE);
}

bool guardrail_running(struct guardrail_running *running)
{
	struct note *note = find();

	if (!note || !note->top || !note->top->entry)
		return false;
	if (note->slept != current->nvcsw) {
		note->slept = current->nvcsw;
		note->looks = 0;
	}
	running->record = note->top;
	running->looks = ++note->looks;
	return true;
}

void guardrail_note_loop(unsigned long ip)
{
	struct note *note = find();

	if (note)
		note->looping = ip;
}

unsigned long guardrail_looping(void)
{
	unsigned long flags, ip;
	struct note *note;

	local_irq_save(flags);
	note = find();
	ip = note ? note->looping : 0;
	local_irq_restore(flags);
	return ip;
}

unsigned long guardrail_inside(void)
{
	unsigned long n = atomic_long_read(&n_others);
	int i;

	for (i = 0; i < ARRAY_SIZE(cells); i++)
		n += !!READ_ONCE(cells[i].task);
	return n;
}

/*
 * True where one of these entries of another task is one into the domain, and, if @p is not 0, its part of the stack
 * has that address. Entries may end meanwhile: reads that fault are caught.
 */
static bool is_inside(const struct guardrail_record *record, u32 domain, unsigned long p)
{
	struct guardrail_entry entry;
	struct guardrail_record copy;
	int depth;

	for (depth = 0; record && depth < MAX_DEPTH; depth++) {
		if (copy_from_kernel_nofault(&copy, record, offsetof(struct guardrail_record, saved)) ||
		    copy_from_kernel_nofault(&entry, copy.entry, sizeof(entry)))
			return false;
		if (entry.domain == domain && (!p || (p < (unsigned long)record && p / THREAD_SIZE == (unsigned long)record / THREAD_SIZE)))
			return true;
		record = copy.previous;
	}
	return false;
}

/* True where some task has such an entry. */
static bool any_inside(u32 domain, unsigned long p)
{
	unsigned long flags;
	struct note *note;
	bool inside = false;
	int i;

	for (i = 0; i < ARRAY_SIZE(cells) && !inside; i++)
		inside = READ_ONCE(cells[i].task) && is_inside(READ_ONCE(cells[i].top), domain, p);
	for (i = 0; i < ARRAY_SIZE(table) && !inside; i++) {
		raw_spin_lock_irqsave(&table[i].lock, flags);
		hlist_for_each_entry(note, &table[i].notes, node)
			inside |= is_inside(READ_ONCE(note->top), domain, p);
		raw_spin_unlock_irqrestore(&table[i].lock, flags);
	}
	return inside;
}

bool guardrail_is_inside(const struct task_struct *task, u32 domain)
{
	unsigned int bucket = bucket_of(task), n;
	bool inside = false;
	unsigned long flags;
	struct note *note;

	for (n = 0; n < 2; n++) {
		note = cell_of(task, n);
		inside |= READ_ONCE(note->task) == task && is_inside(READ_ONCE(note->top), domain, 0);
	}
	if (inside || !atomic_long_read(&n_others))
		return inside;
	raw_spin_lock_irqsave(&table[bucket].lock, flags);
	hlist_for_each_entry(note, &table[bucket].notes, node)
		inside |= note->task == task && is_inside(READ_ONCE(note->top), domain, 0);
	raw_spin_unlock_irqrestore(&table[bucket].lock, flags);
	return inside;
}

bool guardrail_inside_domain(u32 domain)
{
	return atomic_read(&waiting[domain]) || any_inside(domain, 0);
}

bool guardrail_on_stack_of(u32 domain, unsigned long p)
{
	return any_inside(domain, p);
}

/* Finds the outermost of these entries of another task that is an interrupt handler. */
static bool find_interrupt(const struct guardrail_record *record, struct guardrail_interrupt *found)
{
	struct guardrail_entry entry;
	struct guardrail_record copy;
	bool is = false;
	int depth;

	for (depth = 0; record && depth < MAX_DEPTH; depth++, record = copy.previous) {
		if (copy_from_kernel_nofault(&copy, record, sizeof(copy)) || copy_from_kernel_nofault(&entry, copy.entry, sizeof(entry)))
			break;
		if (!(copy.saved.preempt_count & HARDIRQ_MASK))
			break;
		*found = (struct guardrail_interrupt){ copy.call.args[0], entry.domain, entry.function };
		is = true;
	}
	return is;
}

bool guardrail_interrupt_on(unsigned int cpu, struct guardrail_interrupt *found)
{
	typeof_member(struct task_struct, on_cpu) on;
	unsigned int i, where;

	for (i = 0; i < ARRAY_SIZE(cells); i++) {
		struct task_struct *task = READ_ONCE(cells[i].task);

		if (task && !get_kernel_nofault(on, &task->on_cpu) && on && !get_kernel_nofault(where, &task->thread_info.cpu) && where == cpu &&
		    find_interrupt(READ_ONCE(cells[i].top), found))
			return true;
	}
	return false;
}

void guardrail_kill(u32 domain)
{
	if (is_domain(domain))
		set_bit(domain, &guardrail_dead_domains);
}
EXPORT_SYMBOL_GPL(guardrail_kill);

void guardrail_revive(u32 domain)
{
	clear_bit(domain, &guardrail_ended_domains);
	clear_bit(domain, &guardrail_dead_domains);
}

bool guardrail_is_dead(u32 domain)
{
	return is_domain(domain) && test_bit(domain, &guardrail_dead_domains);
}
EXPORT_SYMBOL_GPL(guardrail_is_dead);

int __init guardrail_entry_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(table); i++)
		raw_spin_lock_init(&table[i].lock);
	return guardrail_pool_init(&pool, "guardrail_note", sizeof(struct note), RESERVE);
}

/* No guarded module is loaded any more. The remaining notes are of threads that ended inside one. */
void guardrail_entry_exit(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		struct hlist_node *next;
		struct note *note;

		hlist_for_each_entry_safe(note, next, &table[i].notes, node)
			guardrail_pool_free(&pool, note);
	}
	guardrail_pool_exit(&pool);
}
