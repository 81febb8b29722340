/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Records of kernel objects and owned allocations. guardrail_abi.h declares the functions that modules may call. */
#ifndef GUARDRAIL_RIGHTS_OBJECT_H
#define GUARDRAIL_RIGHTS_OBJECT_H

#include <linux/atomic.h>

#include "rights/tag.h"

/* Bytes of memory that each domain owns. */
extern atomic_long_t guardrail_owned[GUARDRAIL_DOMAINS];

/**
 * guardrail_object_init() - Set up the table of records.
 *
 * Return: 0, or -ENOMEM.
 */
int __init guardrail_object_init(void);

/**
 * guardrail_object_exit() - Free all records.
 */
void guardrail_object_exit(void);

/**
 * guardrail_object_forget() - Drop the record of an object; the caller changes its mark.
 * @domain: Domain that holds it.
 * @p: Begin of the object.
 *
 * Context: Any but NMI.
 */
void guardrail_object_forget(u32 domain, unsigned long p);

/**
 * guardrail_objects_forget_all() - Drop all records of a domain; the caller clears its tags.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 */
void guardrail_objects_forget_all(u32 domain);

/* Called for each new allocation while a transaction is under way on the CPU. Set once, before a guarded module is loaded. */
/**
 * guardrail_own_known() - Give an allocation of the domain a record that it had none of so far.
 * @domain: The domain.
 * @p: First byte.
 * @size: Number of bytes.
 * @kind: Kind of the allocation.
 *
 * Context: Any but NMI.
 * Return: 0, or an error, as guardrail_own(), for which the allocation is new.
 */
int guardrail_own_known(u32 domain, unsigned long p, unsigned long size, u32 kind);

extern void (*guardrail_owner_comes)(u32 domain, unsigned long p, unsigned long size, u32 kind);

/**
 * guardrail_put_object() - Put an object into a state, whatever state it is in.
 * @domain: Domain that holds it.
 * @p: Begin of the object.
 * @type: Its type.
 * @to: The new state.
 *
 * Context: Any but NMI.
 * Return: 0, -ENOENT where there is no object of this type, -EINVAL for a bad state.
 */
int guardrail_put_object(u32 domain, unsigned long p, u32 type, u32 to);

/**
 * guardrail_renew_object() - Make an object, or start one anew that is there.
 * @domain: Domain that gets it.
 * @p: Begin of the object.
 * @size: Its size in bytes.
 * @type: Its type; an object of another type there is replaced.
 *
 * Context: Any but NMI.
 * Return: As guardrail_create_object(), without -EEXIST.
 */
int guardrail_renew_object(u32 domain, unsigned long p, unsigned long size, u32 type);

/**
 * guardrail_keep_object() - Make an object again that was cleared a moment ago.
 * @domain: Domain that gets it.
 * @p: Begin of the object.
 * @size: Its size in bytes.
 * @type: Its type.
 *
 * It starts in its first state. The domain's right to write its bytes stays as it is.
 *
 * Context: Any but NMI.
 * Return: 0, -EEXIST or -ENOMEM.
 */
int guardrail_keep_object(u32 domain, unsigned long p, unsigned long size, u32 type);

/**
 * guardrail_object_any() - Find the object of any type that begins at an address.
 * @domain: Domain that holds it.
 * @p: The address.
 * @type: Gets its type.
 * @state: Gets its state.
 *
 * Context: Any but NMI.
 * Return: False where none begins there.
 */
bool guardrail_object_any(u32 domain, unsigned long p, u32 *type, u32 *state);

/**
 * guardrail_owner_note() - Note a number with an owned allocation.
 * @domain: Domain that owns it.
 * @p: Begin of the allocation.
 * @kind: Its kind; nothing is noted for one of another kind.
 * @what: The number.
 *
 * Context: Any but NMI.
 */
void guardrail_owner_note(u32 domain, unsigned long p, u32 kind, u32 what);

/**
 * guardrail_owner_noted() - Read the number that guardrail_owner_note() noted.
 * @domain: Domain that owns the allocation.
 * @p: Begin of the allocation.
 * @kind: Its kind.
 *
 * Context: Any but NMI.
 * Return: The number; 0 where none was noted or there is no such allocation.
 */
u32 guardrail_owner_noted(u32 domain, unsigned long p, u32 kind);

/**
 * guardrail_owns_any() - Test for an owned allocation of any kind.
 * @domain: Domain that may own it.
 * @p: Begin of the allocation.
 *
 * Context: Any but NMI.
 * Return: True where the domain owns it.
 */
bool guardrail_owns_any(u32 domain, unsigned long p);

/**
 * guardrail_forget_owner() - Disown an allocation of any kind.
 * @domain: Domain that may own it.
 * @p: Begin of the allocation.
 *
 * Context: Any but NMI.
 */
void guardrail_forget_owner(u32 domain, unsigned long p);

/**
 * guardrail_objects_walk() - Visit the records of a domain.
 * @domain: The domain.
 * @each: Called for each record, without a lock; a result other than 0 ends the walk.
 * @data: Passed to @each.
 *
 * Context: As @each.
 * Return: 0, or what @each returned.
 */
int guardrail_objects_walk(u32 domain, int (*each)(const struct guardrail_held *held, void *data), void *data);

/**
 * guardrail_object_count() - Count the records of all domains.
 *
 * Return: Their number.
 */
unsigned long guardrail_object_count(void);

/**
 * guardrail_owned_bytes() - Read how much memory a domain owns.
 * @domain: The domain.
 *
 * Return: The bytes of all its allocations, without mappings of registers.
 */
unsigned long guardrail_owned_bytes(u32 domain);

/**
 * guardrail_count_owned() - Change how much memory a domain owns.
 * @domain: The domain.
 * @more: Bytes to add; negative to subtract.
 */
static inline void guardrail_count_owned(u32 domain, long more)
{
	atomic_long_add(more, &guardrail_owned[domain]);
}

#endif /* GUARDRAIL_RIGHTS_OBJECT_H */
