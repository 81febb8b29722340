// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Who is in a guarded module, and since where on the stack. Each entry leaves a record on the stack, above all that the module's
 * function uses; the innermost one of a task stands in its note, which is found by the task. So a task may sleep in the module and go on
 * on another CPU, and interrupts nest on the task that they have interrupted.
 */
#include <linux/hash.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/spinlock.h>

#include "internal.h"

#define HASH_BITS 8
#define RESERVE 64

/* A task that is in guarded modules. Only the task itself, or what has interrupted it, looks at its note. */
struct note {
	struct hlist_node node;
	struct task_struct *task;
	u64 born;			/* another task may get the same memory */
	struct guardrail_record *top;
	unsigned long limit;		/* where the part of the stack ends that may be written; 0 for all */
};

static struct {
	raw_spinlock_t lock;
	struct hlist_head notes;
} table[1 << HASH_BITS];

static struct guardrail_pool pool;
/* Nearly every entry is the first one of its task, and ends on the CPU that it began on. */
static DEFINE_PER_CPU(struct note *, spare);
static unsigned long dead_domains;

static unsigned int bucket_of(const struct task_struct *task)
{
	return hash_ptr((void *)task, HASH_BITS);
}

/* The note of this task, under its bucket's lock. One of a task that has gone without leaving is as good as new. */
static struct note *find(unsigned int bucket)
{
	struct note *note;

	hlist_for_each_entry(note, &table[bucket].notes, node) {
		if (note->task != current)
			continue;
		if (note->born != current->start_boottime) {
			note->born = current->start_boottime;
			note->top = NULL;
			note->limit = 0;
		}
		return note;
	}
	return NULL;
}

static struct note *new_note(void)
{
	struct note *note = this_cpu_xchg(spare, NULL);

	return note ?: guardrail_pool_alloc(&pool);
}

static void free_note(struct note *note)
{
	if (this_cpu_cmpxchg(spare, NULL, note))
		guardrail_pool_free(&pool, note);
}

bool guardrail_push(struct guardrail_record *record, bool callers_stack)
{
	unsigned int bucket = bucket_of(current);
	struct note *note, *fresh = NULL;
	unsigned long flags;

	for (;;) {
		raw_spin_lock_irqsave(&table[bucket].lock, flags);
		note = find(bucket);
		if (!note && fresh) {
			note = fresh;
			fresh = NULL;
			*note = (struct note){ .task = current, .born = current->start_boottime };
			hlist_add_head(&note->node, &table[bucket].notes);
		}
		if (note) {
			record->task = note;
			record->previous = note->top;
			record->previous_limit = note->limit;
			note->top = record;
			note->limit = callers_stack ? 0 : (unsigned long)record;
		}
		raw_spin_unlock_irqrestore(&table[bucket].lock, flags);
		if (note)
			break;
		fresh = new_note();
		if (!fresh)
			return false;
	}
	/* An interrupt has been in a module meanwhile, and left its note behind. */
	if (fresh)
		free_note(fresh);
	return true;
}

void guardrail_pop(struct guardrail_record *record)
{
	struct note *note = record->task;
	unsigned int bucket;
	unsigned long flags;

	if (record->previous) {
		note->limit = record->previous_limit;
		WRITE_ONCE(note->top, record->previous);
		return;
	}
	bucket = bucket_of(current);
	/* No interrupt may find the note in between. */
	raw_spin_lock_irqsave(&table[bucket].lock, flags);
	hlist_del(&note->node);
	raw_spin_unlock_irqrestore(&table[bucket].lock, flags);
	free_note(note);
}

int guardrail_enter(const struct guardrail_entry *entry, struct guardrail_record *record)
{
	record->entry = entry;
	if (!guardrail_is_dead(entry->domain) && guardrail_push(record, entry->flags & GUARDRAIL_ENTRY_CALLERS_STACK))
		return 0;
	record->frame.result = entry->dead;
	record->frame.second = 0;
	return -EIO;
}
EXPORT_SYMBOL_GPL(guardrail_enter);

void guardrail_leave(struct guardrail_record *record)
{
	guardrail_pop(record);
}
EXPORT_SYMBOL_GPL(guardrail_leave);

unsigned long guardrail_stack_limit(void)
{
	unsigned int bucket = bucket_of(current);
	unsigned long flags, limit = 0;
	struct note *note;

	raw_spin_lock_irqsave(&table[bucket].lock, flags);
	note = find(bucket);
	if (note)
		limit = note->limit;
	raw_spin_unlock_irqrestore(&table[bucket].lock, flags);
	return limit;
}

void guardrail_forget_task(void)
{
	unsigned int bucket = bucket_of(current);
	unsigned long flags;
	struct note *note;

	raw_spin_lock_irqsave(&table[bucket].lock, flags);
	note = find(bucket);
	if (note)
		hlist_del(&note->node);
	raw_spin_unlock_irqrestore(&table[bucket].lock, flags);
	if (note)
		free_note(note);
}

unsigned long guardrail_inside(void)
{
	unsigned int bucket;
	unsigned long flags, n = 0;
	struct note *note;

	for (bucket = 0; bucket < ARRAY_SIZE(table); bucket++) {
		raw_spin_lock_irqsave(&table[bucket].lock, flags);
		hlist_for_each_entry(note, &table[bucket].notes, node)
			n++;
		raw_spin_unlock_irqrestore(&table[bucket].lock, flags);
	}
	return n;
}

void guardrail_kill(u32 domain)
{
	if (is_domain(domain))
		set_bit(domain, &dead_domains);
}
EXPORT_SYMBOL_GPL(guardrail_kill);

void guardrail_revive(u32 domain)
{
	clear_bit(domain, &dead_domains);
}

bool guardrail_is_dead(u32 domain)
{
	return is_domain(domain) && test_bit(domain, &dead_domains);
}
EXPORT_SYMBOL_GPL(guardrail_is_dead);

int __init guardrail_entry_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(table); i++)
		raw_spin_lock_init(&table[i].lock);
	return guardrail_pool_init(&pool, "guardrail_note", sizeof(struct note), RESERVE);
}

/* No guarded module is there any more; the notes that are left are of threads that were ended in one. */
void guardrail_entry_exit(void)
{
	int i, cpu;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		struct hlist_node *next;
		struct note *note;

		hlist_for_each_entry_safe(note, next, &table[i].notes, node)
			guardrail_pool_free(&pool, note);
	}
	for_each_possible_cpu(cpu)
		if (per_cpu(spare, cpu))
			guardrail_pool_free(&pool, per_cpu(spare, cpu));
	guardrail_pool_exit(&pool);
}
