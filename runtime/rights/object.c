// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Records of kernel objects and owned allocations. A record has the type, the state and the size of an object, or the
 * kind of an owned allocation. Records decide. The marks in the table keep objects from being written, and show which
 * of a range of memory begin there.
 */
#include <linux/hash.h>
#include <linux/spinlock.h>

#include "base/pool.h"
#include "rights/conflict.h"
#include "rights/kinds.h"
#include "rights/object.h"
#include "rights/ranges.h"
#include "rights/received.h"
#include "rights/skb.h"
#include "rights/table.h"

#define HASH_BITS 12
#define LOCK_BITS 6
#define RESERVE 128
/* Free records that wait for each lock. */
#define MAX_FREE 8

/**
 * struct record - An object or an owned allocation.
 * @node: Place in its bucket, or in the list of free records.
 * @addr: Its begin.
 * @size: Its size in bytes.
 * @number: Goes up with each record of its part; a walk goes by it.
 * @type: Type of the object, or kind of the allocation.
 * @state: State of the object; what guardrail_owner_note() noted.
 * @domain: Domain that holds it.
 * @right: GUARDRAIL_OBJECT or GUARDRAIL_OWNER.
 */
struct record {
	struct hlist_node node;
	unsigned long addr;
	unsigned long size;
	u64 number;
	u32 type;
	u32 state;
	u8 domain;
	u8 right;
};

static struct guardrail_pool pool;
static struct hlist_head table[1 << HASH_BITS];
/**
 * struct part - The buckets that one lock serves, and records that wait for them.
 * @lock: Protects the buckets and the members below. Taken in any context but NMI; nothing nests inside.
 * @n_free: Number of free records.
 * @free: Free records: packets make and drop records all the time.
 * @last_number: The last number that a record got.
 * @n_records: Number of records in use.
 */
static struct part {
	spinlock_t lock;
	u32 n_free;
	struct hlist_head free;
	u64 last_number;
	unsigned long n_records;
} parts[1 << LOCK_BITS];

atomic_long_t guardrail_owned[GUARDRAIL_DOMAINS];

/* True for kinds that are memory, not mappings of registers or parts of kernel objects. */
static bool is_memory(u32 kind)
{
	return kind == KIND_PAGES || (!(kind & KIND_OWN) && kind != GUARDRAIL_KIND_IO);
}

static void count_owned(const struct record *record, bool more)
{
	if (record->right == GUARDRAIL_OWNER && is_memory(record->type))
		guardrail_count_owned(record->domain, more ? record->size : -record->size);
}

unsigned long guardrail_owned_bytes(u32 domain)
{
	return atomic_long_read(&guardrail_owned[domain % GUARDRAIL_DOMAINS]);
}

static unsigned int bucket_of(unsigned long addr)
{
	return hash_long(addr, HASH_BITS);
}

static struct part *part_of(unsigned int bucket)
{
	return &parts[bucket % ARRAY_SIZE(parts)];
}

static spinlock_t *lock_of(unsigned int bucket)
{
	return &part_of(bucket)->lock;
}

/* Finds the record of what begins at @addr, under the lock of its bucket. */
static struct record *find(unsigned long addr, u32 domain, u8 right)
{
	struct record *record;

	hlist_for_each_entry(record, &table[bucket_of(addr)], node)
		if (record->addr == addr && record->domain == domain && record->right == right)
			return record;
	return NULL;
}

/* Inserts a record, under the lock; NULL without memory. */
static struct record *insert(unsigned int bucket, const struct record *what)
{
	struct part *part = part_of(bucket);
	struct record *record;

	lockdep_assert_held(&part->lock);
	if (part->n_free) {
		part->n_free--;
		record = hlist_entry(part->free.first, struct record, node);
		__hlist_del(&record->node);
	} else {
		record = guardrail_pool_alloc(&pool);
		if (!record)
			return NULL;
	}
	*record = *what;
	record->number = ++part->last_number;
	hlist_add_head(&record->node, &table[bucket]);
	part->n_records++;
	count_owned(record, true);
	return record;
}

/* Removes a record, under the lock. */
static void drop(unsigned int bucket, struct record *record)
{
	struct part *part = part_of(bucket);

	lockdep_assert_held(&part->lock);
	__hlist_del(&record->node);
	if (record->type == GUARDRAIL_TYPE_NAPI && receipts_of(record->domain))
		reached_no_more(receipts_of(record->domain), record->addr + REACHED_NAPI);
	part->n_records--;
	count_owned(record, false);
	if (part->n_free == MAX_FREE) {
		guardrail_pool_free(&pool, record);
		return;
	}
	part->n_free++;
	hlist_add_head(&record->node, &part->free);
}

static int add(const struct record *what)
{
	unsigned int bucket = bucket_of(what->addr);
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(lock_of(bucket), flags);
	if (find(what->addr, what->domain, what->right))
		err = -EEXIST;
	else if (!insert(bucket, what))
		err = -ENOMEM;
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return err;
}

/* Removes a record of this type, or of any type where it is 0. */
static int take(unsigned long addr, u32 domain, u8 right, u32 type)
{
	unsigned int bucket = bucket_of(addr);
	struct record *record;
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(addr, domain, right);
	if (record && (!type || record->type == type))
		drop(bucket, record);
	else
		err = -ENOENT;
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return err;
}

/* Finds the size of an owned allocation of this kind; false where none begins at @addr. */
static bool owned(unsigned long addr, u32 domain, u32 type, unsigned long *size)
{
	unsigned int bucket = bucket_of(addr);
	struct record *record;
	unsigned long flags;

	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(addr, domain, GUARDRAIL_OWNER);
	if (record && record->type != type)
		record = NULL;
	if (record)
		*size = record->size;
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return record;
}

/* Sets or removes the mark of one byte. */
static noinline int mark_slot(u32 domain, unsigned long p, u8 mask, u8 right)
{
	struct guardrail_slot_change change = { .domain = domain, .mask = mask, .right = right };

	return guardrail_slot_change(tag_of(p), &change);
}

static int mark(u32 domain, unsigned long p, u8 mask, u8 right)
{
	u8 object = GUARDRAIL_TAG(domain, GUARDRAIL_OBJECT);
	u8 from = right == GUARDRAIL_READ ? object : 0, to = right == GUARDRAIL_READ ? 0 : object;

	/* Mostly an object begins in an empty slot, or ends and leaves an empty one. */
	if (mask == 1 && (right == GUARDRAIL_READ || right == GUARDRAIL_OBJECT) &&
	    READ_ONCE(*(u8 *)tag_of(p)) == from && cmpxchg((u8 *)tag_of(p), from, to) == from)
		return 0;
	return mark_slot(domain, p, mask, right);
}

/* Marks an object that has a record; without memory for the mark it drops the record. */
static int mark_object(u32 domain, unsigned long p, unsigned long size, u32 type)
{
	int err = guardrail_range_change(domain, p, size, GUARDRAIL_READ, true);

	err = err ?: mark(domain, p, slot_mask(p, p + 1), GUARDRAIL_OBJECT);
	if (err)
		take(p, domain, GUARDRAIL_OBJECT, type);
	return err;
}

int guardrail_create_object(u32 domain, unsigned long p, unsigned long size, u32 type)
{
	struct record record = {
		.addr = p, .size = size, .domain = domain, .right = GUARDRAIL_OBJECT, .type = type,
	};
	int err;

	if (!is_domain(domain) || !type || !is_kernel_range(p, size))
		return -EINVAL;
	if (type == GUARDRAIL_TYPE_SKB)
		return guardrail_is_skb(domain, p) ? -EEXIST : guardrail_skb_begins(domain, p, NULL, 0);
	err = populate(tag_of(p), tag_of(p));
	/* Add the record first: of two threads that make an object of the same bytes, one gets an error. */
	err = err ?: add(&record);
	return err ?: mark_object(domain, p, size, type);
}
EXPORT_SYMBOL_GPL(guardrail_create_object);

int guardrail_renew_object(u32 domain, unsigned long p, unsigned long size, u32 type)
{
	struct record what = {
		.addr = p, .size = size, .domain = domain, .right = GUARDRAIL_OBJECT, .type = type,
	};
	unsigned int bucket = bucket_of(p);
	struct record *record;
	unsigned long flags;
	bool old;
	int err;

	if (!is_domain(domain) || !type || !is_kernel_range(p, size))
		return -EINVAL;
	if (type == GUARDRAIL_TYPE_SKB)
		return guardrail_is_skb(domain, p) ? 0 : guardrail_skb_begins(domain, p, NULL, 0);
	err = populate(tag_of(p), tag_of(p));
	if (err)
		return err;
	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(p, domain, GUARDRAIL_OBJECT);
	old = record && record->type == type;
	if (old)
		record->state = 0;
	else if (record)
		drop(bucket, record);
	if (!old && !insert(bucket, &what))
		err = -ENOMEM;
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return old ? 0 : err ?: mark_object(domain, p, size, type);
}

int guardrail_keep_object(u32 domain, unsigned long p, unsigned long size, u32 type)
{
	struct record record = {
		.addr = p, .size = size, .domain = domain, .right = GUARDRAIL_OBJECT, .type = type,
	};
	int err;

	if (type == GUARDRAIL_TYPE_SKB)
		return guardrail_skb_mark(domain, p, true);
	err = populate(tag_of(p), tag_of(p));
	err = err ?: add(&record);
	return err ?: mark(domain, p, slot_mask(p, p + 1), GUARDRAIL_OBJECT);
}

bool guardrail_check_object(u32 domain, unsigned long p, u32 type)
{
	return guardrail_object_state(domain, p, type) >= 0;
}
EXPORT_SYMBOL_GPL(guardrail_check_object);

int guardrail_object_state(u32 domain, unsigned long p, u32 type)
{
	unsigned int bucket = bucket_of(p);
	struct record *record;
	unsigned long flags;
	int state = -ENOENT;

	if (type == GUARDRAIL_TYPE_SKB)
		return guardrail_is_skb(domain, p) ? 0 : -ENOENT;
	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(p, domain, GUARDRAIL_OBJECT);
	if (record && record->type == type)
		state = record->state;
	/* What drivers ask for most often. To end the object takes the lock, and forgets this. */
	if (record && record->type == type && type == GUARDRAIL_TYPE_NAPI && receipts_of(domain))
		reached_now(receipts_of(domain), p + REACHED_NAPI);
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return state;
}
EXPORT_SYMBOL_GPL(guardrail_object_state);

/* Packets have one state. */
static int move_skb(u32 domain, unsigned long p, u32 from, u32 to)
{
	if (to)
		return -EINVAL;
	return guardrail_is_skb(domain, p) ? from ? -EBUSY : 0 : -ENOENT;
}

int guardrail_move_object(u32 domain, unsigned long p, u32 type, u32 from, u32 to)
{
	unsigned int bucket = bucket_of(p);
	struct record *record;
	unsigned long flags;
	int err = 0;

	if (to > INT_MAX)
		return -EINVAL;
	if (type == GUARDRAIL_TYPE_SKB)
		return move_skb(domain, p, from, to);
	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(p, domain, GUARDRAIL_OBJECT);
	if (!record || record->type != type)
		err = -ENOENT;
	else if (record->state != from)
		err = -EBUSY;
	else
		record->state = to;
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return err;
}
EXPORT_SYMBOL_GPL(guardrail_move_object);

int guardrail_put_object(u32 domain, unsigned long p, u32 type, u32 to)
{
	unsigned int bucket = bucket_of(p);
	struct record *record;
	unsigned long flags;

	if (to > INT_MAX)
		return -EINVAL;
	if (type == GUARDRAIL_TYPE_SKB)
		return move_skb(domain, p, 0, to);
	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(p, domain, GUARDRAIL_OBJECT);
	if (record && record->type == type)
		record->state = to;
	else
		record = NULL;
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return record ? 0 : -ENOENT;
}

bool guardrail_object_any(u32 domain, unsigned long p, u32 *type, u32 *state)
{
	unsigned int bucket = bucket_of(p);
	struct record *record;
	unsigned long flags;

	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(p, domain, GUARDRAIL_OBJECT);
	if (record) {
		*type = record->type;
		*state = record->state;
	}
	spin_unlock_irqrestore(lock_of(bucket), flags);
	if (!record && guardrail_is_skb(domain, p)) {
		*type = GUARDRAIL_TYPE_SKB;
		*state = 0;
		return true;
	}
	return record;
}

int guardrail_destroy_object(u32 domain, unsigned long p, u32 type)
{
	int err;

	if (type == GUARDRAIL_TYPE_SKB)
		return guardrail_skb_mark(domain, p, false);
	err = type ? take(p, domain, GUARDRAIL_OBJECT, type) : -EINVAL;
	return err ?: mark(domain, p, slot_mask(p, p + 1), GUARDRAIL_READ);
}
EXPORT_SYMBOL_GPL(guardrail_destroy_object);

void guardrail_object_forget(u32 domain, unsigned long p)
{
	take(p, domain, GUARDRAIL_OBJECT, 0);
}

void (*guardrail_owner_comes)(u32 domain, unsigned long p, unsigned long size, u32 kind);

int guardrail_own_known(u32 domain, unsigned long p, unsigned long size, u32 kind)
{
	struct record record = {
		.addr = p, .size = size, .domain = domain, .right = GUARDRAIL_OWNER, .type = kind,
	};

	if (!is_domain(domain) || !kind || !is_kernel_range(p, size))
		return -EINVAL;
	return add(&record);
}

int guardrail_own(u32 domain, unsigned long p, unsigned long size, u32 kind)
{
	int err = guardrail_own_known(domain, p, size, kind);

	if (!err && unlikely(this_cpu_read(guardrail_transacting)))
		guardrail_owner_comes(domain, p, size, kind);
	return err;
}
EXPORT_SYMBOL_GPL(guardrail_own);

bool guardrail_check_owner(u32 domain, unsigned long p, u32 kind, unsigned long *size)
{
	unsigned long length;

	if (!kind || !owned(p, domain, kind, &length))
		return false;
	if (size)
		*size = length;
	return true;
}
EXPORT_SYMBOL_GPL(guardrail_check_owner);

int guardrail_disown(u32 domain, unsigned long p, u32 kind)
{
	return kind ? take(p, domain, GUARDRAIL_OWNER, kind) : -EINVAL;
}
EXPORT_SYMBOL_GPL(guardrail_disown);

void guardrail_owner_note(u32 domain, unsigned long p, u32 kind, u32 what)
{
	unsigned int bucket = bucket_of(p);
	struct record *record;
	unsigned long flags;

	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(p, domain, GUARDRAIL_OWNER);
	if (record && record->type == kind)
		record->state = what;
	spin_unlock_irqrestore(lock_of(bucket), flags);
}

u32 guardrail_owner_noted(u32 domain, unsigned long p, u32 kind)
{
	unsigned int bucket = bucket_of(p);
	struct record *record;
	unsigned long flags;
	u32 what;

	spin_lock_irqsave(lock_of(bucket), flags);
	record = find(p, domain, GUARDRAIL_OWNER);
	what = record && record->type == kind ? record->state : 0;
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return what;
}

bool guardrail_owns_any(u32 domain, unsigned long p)
{
	unsigned int bucket = bucket_of(p);
	unsigned long flags;
	bool owns;

	spin_lock_irqsave(lock_of(bucket), flags);
	owns = find(p, domain, GUARDRAIL_OWNER);
	spin_unlock_irqrestore(lock_of(bucket), flags);
	return owns;
}

void guardrail_forget_owner(u32 domain, unsigned long p)
{
	take(p, domain, GUARDRAIL_OWNER, 0);
}

/* Finds the newest record of the domain in a bucket that is older than @below. */
static struct record *next_older(unsigned int bucket, u32 domain, u64 below)
{
	struct record *record, *best = NULL;

	hlist_for_each_entry(record, &table[bucket], node)
		if (record->domain == domain && record->number < below && (!best || record->number > best->number))
			best = record;
	return best;
}

int guardrail_objects_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data)
{
	unsigned int bucket;
	int err = 0;

	for (bucket = 0; bucket < ARRAY_SIZE(table) && !err; bucket++) {
		u64 below = U64_MAX;

		while (!err && !hlist_empty(&table[bucket])) {
			struct guardrail_held held;
			struct record *record;
			unsigned long flags;

			spin_lock_irqsave(lock_of(bucket), flags);
			record = next_older(bucket, domain, below);
			if (record) {
				below = record->number;
				held = (struct guardrail_held){
					.start = record->addr, .len = record->size, .domain = domain,
					.right = record->right, .type = record->type, .state = record->state,
				};
			}
			spin_unlock_irqrestore(lock_of(bucket), flags);
			if (!record)
				break;
			err = each(&held, data);
		}
	}
	return err;
}

void guardrail_objects_forget_all(u32 domain)
{
	unsigned int bucket;

	for (bucket = 0; bucket < ARRAY_SIZE(table); bucket++) {
		struct record *record;
		struct hlist_node *next;
		unsigned long flags;

		spin_lock_irqsave(lock_of(bucket), flags);
		hlist_for_each_entry_safe(record, next, &table[bucket], node) {
			if (record->domain != domain)
				continue;
			drop(bucket, record);
		}
		spin_unlock_irqrestore(lock_of(bucket), flags);
	}
}

unsigned long guardrail_object_count(void)
{
	unsigned long n = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		n += READ_ONCE(parts[i].n_records);
	return n;
}

int __init guardrail_object_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(parts); i++)
		spin_lock_init(&parts[i].lock);
	return guardrail_pool_init(&pool, "guardrail_record", sizeof(struct record), RESERVE);
}

void guardrail_object_exit(void)
{
	u32 domain;
	int i;

	for (domain = 1; domain < GUARDRAIL_DOMAINS; domain++)
		guardrail_objects_forget_all(domain);
	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		struct record *record;
		struct hlist_node *next;

		hlist_for_each_entry_safe(record, next, &parts[i].free, node)
			guardrail_pool_free(&pool, record);
	}
	guardrail_pool_exit(&pool);
}
