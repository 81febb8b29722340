// SPDX-License-Identifier: GPL-2.0-or-later
/* Tables of resizable hash tables; classes/rhash.h describes who may write them. */
#include <linux/rcupdate.h>
#include <linux/rhashtable.h>
#include <linux/spinlock.h>

#include "base/address.h"
#include "border/custom.h"
#include "classes/rhash.h"

#define MOST 512
/* A table, and those that it is being moved to: each is twice the one before. */
#define MOST_TABLES 32
/* So many tables of a hash table are remembered: some may be replaced in a grace period. */
#define REMEMBERED 8

/* A table that was in use at this state of grace periods: the kernel frees it after a whole one has passed since. */
struct seen {
	const struct bucket_table *table;
	u32 size;
	unsigned long state;
};

/* Hash tables that drivers have initialized; a domain of 0 marks a free place. */
static struct known {
	struct rhashtable *ht;
	u32 domain;
	u32 type;
	struct seen seen[REMEMBERED];
	/* The place in seen of the next table. */
	u32 next;
} known[MOST];
/* So many places at the begin were ever used. */
static unsigned int used;
/* Protects known and used. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(lock);

/* A hash table is initialized; the value is the type of its objects. Without a place its buckets stay the kernel's. */
GUARDRAIL_CUSTOM(rhash_new)
{
	struct rhashtable *ht = (struct rhashtable *)object_of(action, call);
	unsigned long flags;
	unsigned int i, place = MOST;

	if (!ht)
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < used && known[i].ht != ht; i++)
		if (!known[i].domain)
			place = i;
	if (i < used)
		place = i;
	else if (place == MOST && used < MOST)
		place = used++;
	if (place < MOST) {
		known[place].ht = ht;
		known[place].domain = action->domain;
		known[place].type = size_of(action, call);
		memset(known[place].seen, 0, sizeof(known[place].seen));
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

/* A hash table is destroyed. */
GUARDRAIL_CUSTOM(rhash_gone)
{
	struct rhashtable *ht = (struct rhashtable *)object_of(action, call);
	unsigned long flags;
	unsigned int i;

	if (!ht)
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < used; i++)
		if (known[i].ht == ht && known[i].domain == action->domain) {
			known[i].ht = NULL;
			known[i].domain = 0;
		}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static bool holds(const struct bucket_table *table, u32 size, unsigned long addr)
{
	return addr >= (unsigned long)table->buckets && addr < (unsigned long)(table->buckets + size);
}

/* A driver in a reader's section goes on with the table that it found while a thread of the kernel's replaces it. */
static void remember(struct known *place, const struct rhashtable *ht, const struct seen *seen)
{
	unsigned long flags;
	int i;

	for (i = 0; i < REMEMBERED && READ_ONCE(place->seen[i].table) != seen->table; i++)
		;
	if (i < REMEMBERED && READ_ONCE(place->seen[i].state) == seen->state)
		return;
	raw_spin_lock_irqsave(&lock, flags);
	if (place->ht == ht) {
		for (i = 0; i < REMEMBERED && place->seen[i].table != seen->table; i++)
			;
		/* Rather one that is freed already. */
		if (i == REMEMBERED)
			for (i = 0; i < REMEMBERED && place->seen[i].table && !poll_state_synchronize_rcu(place->seen[i].state); i++)
				;
		if (i == REMEMBERED)
			i = place->next++ % REMEMBERED;
		place->seen[i] = *seen;
	}
	raw_spin_unlock_irqrestore(&lock, flags);
}

/* The table was replaced, but not long enough ago to be freed. */
static bool is_remembered(const struct known *place, const struct rhashtable *ht, unsigned long addr)
{
	unsigned long flags;
	bool is = false;
	int i;

	raw_spin_lock_irqsave(&lock, flags);
	for (i = 0; i < REMEMBERED && place->ht == ht && !is; i++) {
		const struct seen *seen = &place->seen[i];

		is = seen->table && holds(seen->table, seen->size, addr) && !poll_state_synchronize_rcu(seen->state);
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return is;
}

/* The hash table is an object, so that only the kernel changes where its buckets are. */
static bool has_bucket(struct known *place, const struct rhashtable *ht, unsigned long addr)
{
	/* Before the table is read: it was in use then, or later. */
	struct seen seen = { .state = get_state_synchronize_rcu() };
	const struct bucket_table *table = pointer_at(&ht->tbl);
	unsigned long size;
	bool own = false;
	int i;

	/* All of them: each is in use, and will be the first. */
	for (i = 0; i < MOST_TABLES && (unsigned long)table >= KERNEL_HALF; i++, table = pointer_at(&table->future_tbl)) {
		if (!load_word((unsigned long)&table->size, &size))
			break;
		/* The upper half is the depth of nested tables, whose buckets are not in one piece. */
		if (size >> 32)
			continue;
		seen.table = table;
		seen.size = size;
		remember(place, ht, &seen);
		own |= holds(table, size, addr);
	}
	return own || is_remembered(place, ht, addr);
}

/* Finds the hash table of a domain at this place. */
static struct rhashtable *table_of(u32 domain, const struct known *place)
{
	struct rhashtable *ht = READ_ONCE(place->ht);

	return ht && place->domain == domain && guardrail_check_object(domain, (unsigned long)ht, place->type) ? ht : NULL;
}

bool guardrail_is_bucket(u32 domain, unsigned long addr, unsigned long n)
{
	unsigned int i;
	bool own = false;

	if (n > sizeof(void *) || addr % sizeof(void *) + n > sizeof(void *))
		return false;
	/* Tables that are replaced are freed after a grace period. */
	rcu_read_lock();
	for (i = 0; i < READ_ONCE(used) && !own; i++) {
		struct rhashtable *ht = table_of(domain, &known[i]);

		own = ht && has_bucket(&known[i], ht, addr);
	}
	rcu_read_unlock();
	return own;
}

bool guardrail_in_hash_table(u32 domain, unsigned long p, unsigned long n)
{
	unsigned int i;

	for (i = 0; i < READ_ONCE(used); i++) {
		unsigned long ht = (unsigned long)table_of(domain, &known[i]);

		if (ht && p >= ht && n <= sizeof(struct rhashtable) && p - ht <= sizeof(struct rhashtable) - n)
			return true;
	}
	return false;
}
