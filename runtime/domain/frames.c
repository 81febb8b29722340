// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Objects on stacks. A function of a guarded module that has taken the address of a variable checks
 * before it returns, if any object is noted. An object that the kernel still uses then is a
 * violation. The object itself shows whether the kernel uses it, since it is unchanged until the
 * function has returned. So no code has to record the end of its use.
 */
#include <linux/hash.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/sched/task_stack.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "base/address.h"
#include "base/limits.h"
#include "base/pool.h"
#include "domain/frames.h"
#include "domain/ops.h"
#include "domain/policy.h"
#include "domain/stack.h"
#include "rights/kinds.h"
#include "rights/object.h"

#define HASH_BITS 6
#define RESERVE 32

/**
 * struct noted - An object on a stack, in the table.
 * @node: Place in the list of its stack.
 * @task: Task that runs on the stack.
 * @born: When the task was born: another may get the same memory, and the same stack.
 * @what: The object.
 */
struct noted {
	struct hlist_node node;
	struct task_struct *task;
	u64 born;
	struct guardrail_noted what;
};

static const struct {
	const char *name;
	unsigned long size;
} kinds[] = {
	[ON_WORK] = { "queued work", sizeof(struct work_struct) },
	[ON_TIMER] = { "an armed timer", sizeof(struct timer_list) },
	[ON_WAIT] = { "an entry of a wait queue", sizeof(struct wait_queue_entry) },
	[ON_LIST] = { "an entry of a list", sizeof(struct list_head) },
	[ON_MISC] = { "a registered device", sizeof(struct miscdevice) },
};

/**
 * struct stack - The objects on some stacks, by the stacks' addresses.
 * @lock: Protects @notes. Taken in any context but NMI. The locks of the rights room nest inside.
 * @notes: The objects.
 */
static struct stack {
	raw_spinlock_t lock;
	struct hlist_head notes;
} stacks[1 << HASH_BITS];
static struct guardrail_pool pool;

/* The number of noted objects; modules compare it with 0. */
atomic_t guardrail_frames = ATOMIC_INIT(0);
EXPORT_SYMBOL_GPL(guardrail_frames);

static struct stack *stack_of(unsigned long p)
{
	return &stacks[hash_long(p / THREAD_SIZE, HASH_BITS)];
}

static bool is_of_current(const struct noted *noted)
{
	return noted->task == current && noted->born == current->start_boottime;
}

static struct noted *find(struct stack *stack, unsigned long p, enum guardrail_on_stack kind)
{
	struct noted *noted;

	lockdep_assert_held(&stack->lock);
	hlist_for_each_entry(noted, &stack->notes, node)
		if (noted->what.p == p && noted->what.kind == kind)
			return noted;
	return NULL;
}

bool guardrail_frame_note(const struct guardrail_noted *what)
{
	struct stack *stack = stack_of(what->p);
	struct noted *noted, *fresh;
	unsigned long flags;

	if (!guardrail_on_stack(what->p, kinds[what->kind].size))
		return false;
	fresh = guardrail_pool_alloc(&pool);
	raw_spin_lock_irqsave(&stack->lock, flags);
	noted = find(stack, what->p, what->kind);
	if (!noted && fresh) {
		noted = fresh;
		fresh = NULL;
		hlist_add_head(&noted->node, &stack->notes);
		atomic_inc(&guardrail_frames);
	}
	if (noted) {
		noted->task = current;
		noted->born = current->start_boottime;
		noted->what = *what;
	}
	raw_spin_unlock_irqrestore(&stack->lock, flags);
	if (!noted)
		guardrail_limit_reached(GUARDRAIL_LIMIT_FRAMES);
	if (fresh)
		guardrail_pool_free(&pool, fresh);
	return true;
}

bool guardrail_frame_is_noted(unsigned long p, enum guardrail_on_stack kind)
{
	struct stack *stack = stack_of(p);
	unsigned long flags;
	bool is;

	if (!guardrail_any_frames())
		return false;
	raw_spin_lock_irqsave(&stack->lock, flags);
	is = find(stack, p, kind);
	raw_spin_unlock_irqrestore(&stack->lock, flags);
	return is;
}

/* The memory of a timer or a device is plain stack again. */
static void gone(const struct guardrail_noted *what)
{
	if (what->kind != ON_TIMER && what->kind != ON_MISC)
		return;
	guardrail_destroy_object(what->domain, what->p, what->kind == ON_TIMER ? GUARDRAIL_TYPE_TIMER : GUARDRAIL_TYPE_MISCDEVICE);
	guardrail_revoke(what->domain, what->p, kinds[what->kind].size);
}

void guardrail_frame_forget(unsigned long p, enum guardrail_on_stack kind)
{
	struct stack *stack = stack_of(p);
	struct noted *noted;
	unsigned long flags;

	if (!guardrail_any_frames())
		return;
	raw_spin_lock_irqsave(&stack->lock, flags);
	noted = find(stack, p, kind);
	if (noted) {
		hlist_del(&noted->node);
		atomic_dec(&guardrail_frames);
	}
	raw_spin_unlock_irqrestore(&stack->lock, flags);
	if (!noted)
		return;
	gone(&noted->what);
	guardrail_pool_free(&pool, noted);
}

/* Finds an object in [from, to), a part of one stack. Objects that other tasks left there are forgotten. */
static bool next(unsigned long from, unsigned long to, struct guardrail_noted *what)
{
	struct stack *stack = stack_of(from);
	struct noted *noted;
	unsigned long flags;
	bool found = false, stale = false;

	raw_spin_lock_irqsave(&stack->lock, flags);
	hlist_for_each_entry(noted, &stack->notes, node) {
		if (noted->what.p < from || noted->what.p >= to)
			continue;
		*what = noted->what;
		found = true;
		stale = !is_of_current(noted);
		break;
	}
	raw_spin_unlock_irqrestore(&stack->lock, flags);
	if (!stale)
		return found;
	guardrail_frame_forget(what->p, what->kind);
	return next(from, to, what);
}

/*
 * Finds the neighbors of a node: the nodes that link to it. Its own links lead to them. The compiler may have left out
 * stores to a variable that ends; then the nodes that it was inserted between do.
 */
static bool find_neighbours(struct list_head *node, const struct list_head *between, struct list_head *found)
{
	struct list_head own = { }, links;
	const struct list_head *candidates[4];
	int i;

	guardrail_links_of(node, &own);
	candidates[0] = own.prev;
	candidates[1] = own.next;
	candidates[2] = between->prev;
	candidates[3] = between->next;
	*found = (struct list_head){ };
	for (i = 0; i < ARRAY_SIZE(candidates); i++) {
		if (candidates[i] == node || !guardrail_links_of(candidates[i], &links))
			continue;
		if (links.next == node)
			found->prev = (struct list_head *)candidates[i];
		if (links.prev == node)
			found->next = (struct list_head *)candidates[i];
	}
	return found->prev && found->next;
}

/*
 * True for a neighbor that stays when the stack frame, which ends at @to, is freed. Memory that was
 * freed with links in it is no neighbor: the driver may not write it any more.
 */
static bool stays(u32 domain, const struct list_head *neighbour, unsigned long from, unsigned long to)
{
	unsigned long p = (unsigned long)neighbour;

	if (p / THREAD_SIZE == from / THREAD_SIZE)
		return p >= to;
	return guardrail_check_write(domain, p, sizeof(*neighbour));
}

/* True where the kernel, or any other code, still uses the object. */
static bool is_in_use(const struct guardrail_noted *what, unsigned long from, unsigned long to)
{
	struct list_head found, *entry = &((struct wait_queue_entry *)what->p)->entry;

	switch (what->kind) {
	case ON_WORK:
		return work_pending((struct work_struct *)what->p);
	case ON_TIMER:
		/* A timer of delayed work ends with its work. */
		return timer_pending((struct timer_list *)what->p) && ((struct timer_list *)what->p)->function != delayed_work_timer_fn;
	case ON_WAIT:
		return find_neighbours(entry, entry, &found);
	case ON_LIST:
		return find_neighbours((struct list_head *)what->p, &what->between, &found) &&
		       (stays(what->domain, found.next, from, to) || stays(what->domain, found.prev, from, to));
	case ON_MISC:
		/* It is in its first state while it is not registered. */
		return guardrail_object_state(what->domain, what->p, GUARDRAIL_TYPE_MISCDEVICE) > 0;
	}
	return false;
}

/* Takes the object from its user, in any context that driver code runs in. */
static void take_back(const struct guardrail_noted *what)
{
	struct work_struct *work = (struct work_struct *)what->p;
	struct list_head found;

	switch (what->kind) {
	case ON_WORK:
		if (guardrail_is_delayed(work))
			cancel_delayed_work(container_of(work, struct delayed_work, work));
		else
			cancel_work(work);
		break;
	case ON_TIMER:
		timer_delete((struct timer_list *)what->p);
		break;
	case ON_WAIT:
		finish_wait(what->queue, (struct wait_queue_entry *)what->p);
		break;
	case ON_LIST:
		if (find_neighbours((struct list_head *)what->p, &what->between, &found))
			__list_del(found.prev, found.next);
		break;
	case ON_MISC:
		misc_deregister((struct miscdevice *)what->p);
		break;
	}
}

void guardrail_frames_end(unsigned long from, unsigned long to)
{
	struct guardrail_noted what;

	while (guardrail_any_frames() && next(from, to, &what)) {
		if (is_in_use(&what, from, to))
			take_back(&what);
		guardrail_frame_forget(what.p, what.kind);
	}
}

void guardrail_frames_left(const void *record)
{
	unsigned long to = (unsigned long)record;
	struct guardrail_noted what;

	while (next(round_down(to, THREAD_SIZE), to, &what))
		guardrail_frame_forget(what.p, what.kind);
}

void guardrail_frame_slow(unsigned long end, unsigned long domain, unsigned long ip)
{
	unsigned long from = current_stack_pointer;
	struct guardrail_noted what;

	if (end <= from || end - from > THREAD_SIZE)
		return;
	while (next(from, end, &what)) {
		if (is_in_use(&what, from, end)) {
			/* If the entry ends, this happens then, when no lock is held any more. */
			if (guardrail_ends_threads() && !guardrail_ends_entries())
				take_back(&what);
			guardrail_domain_ops->object_kept(&what, kinds[what.kind].name, domain, ip);
		}
		guardrail_frame_forget(what.p, what.kind);
	}
}
EXPORT_SYMBOL_GPL(guardrail_frame_slow);

/* True for a part of an object in use that its driver may write. */
static bool is_own_field(const struct guardrail_noted *what, unsigned long addr, unsigned long n)
{
	unsigned long at = addr - what->p - offsetof(struct timer_list, expires), size = sizeof_field(struct timer_list, expires);

	/* Inlined functions write the links of lists. */
	return what->kind == ON_LIST || (what->kind == ON_TIMER && at < size && n <= size - at);
}

const char *guardrail_frame_use(unsigned long addr, unsigned long n)
{
	struct stack *stack = stack_of(addr);
	struct guardrail_noted what;
	const char *name = NULL;
	struct noted *noted;
	unsigned long flags;

	raw_spin_lock_irqsave(&stack->lock, flags);
	hlist_for_each_entry(noted, &stack->notes, node) {
		what = noted->what;
		if (!is_of_current(noted) || addr >= what.p + kinds[what.kind].size || addr + n <= what.p || is_own_field(&what, addr, n))
			continue;
		if (is_in_use(&what, what.p, what.p + kinds[what.kind].size))
			name = kinds[what.kind].name;
	}
	raw_spin_unlock_irqrestore(&stack->lock, flags);
	return name;
}

void guardrail_frames_forget(u32 domain)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(stacks); i++) {
		struct hlist_node *next;
		struct noted *noted;
		unsigned long flags;

		raw_spin_lock_irqsave(&stacks[i].lock, flags);
		hlist_for_each_entry_safe(noted, next, &stacks[i].notes, node) {
			if (noted->what.domain != domain)
				continue;
			hlist_del(&noted->node);
			atomic_dec(&guardrail_frames);
			guardrail_pool_free(&pool, noted);
		}
		raw_spin_unlock_irqrestore(&stacks[i].lock, flags);
	}
}

int __init guardrail_frames_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(stacks); i++)
		raw_spin_lock_init(&stacks[i].lock);
	return guardrail_pool_init(&pool, "guardrail_call", sizeof(struct noted), RESERVE);
}

void guardrail_frames_exit(void)
{
	u32 domain;

	for (domain = 1; domain < GUARDRAIL_DOMAINS; domain++)
		guardrail_frames_forget(domain);
	guardrail_pool_exit(&pool);
}
