// SPDX-License-Identifier: GPL-2.0-or-later
/* Tables of resizable hash tables; classes/rhash.h describes who may write them. */
#include <linux/rhashtable.h>
#include <linux/spinlock.h>

#include "base/address.h"
#include "border/custom.h"
#include "classes/rhash.h"

#define MOST 512
/* A table, and the one that it is being moved to. */
#define MOST_TABLES 4

/* Hash tables that drivers have initialized; a domain of 0 marks a free place. */
static struct {
	struct rhashtable *ht;
	u32 domain;
	u32 type;
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

/* The hash table is an object, so that only the kernel changes where its buckets are. */
static bool has_bucket(const struct rhashtable *ht, unsigned long addr)
{
	const struct bucket_table *table = pointer_at(&ht->tbl);
	unsigned long size;
	int i;

	for (i = 0; i < MOST_TABLES && (unsigned long)table >= KERNEL_HALF; i++, table = pointer_at(&table->future_tbl)) {
		if (!load_word((unsigned long)&table->size, &size))
			return false;
		/* The upper half is the depth of nested tables, whose buckets are not in one piece. */
		if (!(size >> 32) && addr >= (unsigned long)table->buckets && addr < (unsigned long)(table->buckets + (u32)size))
			return true;
	}
	return false;
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
		struct rhashtable *ht = READ_ONCE(known[i].ht);

		own = ht && known[i].domain == domain && guardrail_check_object(domain, (unsigned long)ht, known[i].type) &&
		      has_bucket(ht, addr);
	}
	rcu_read_unlock();
	return own;
}
