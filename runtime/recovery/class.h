/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Classes of kernel objects (network devices, SCSI hosts, file systems, …) whose recovery needs
 * more than the release of their memory. Each class registers what it does at each step; recovery
 * and teardown loop over the classes and know none by name.
 *
 * A recovery runs in this order: silence, save, park, teardown, reload of the modules, restore.
 * After a failure it calls fail, and at the end always forget. A teardown alone serves a module of
 * a dead domain that is unloaded. It calls park with fails set, and then the teardown members.
 */
#ifndef GUARDRAIL_RECOVERY_CLASS_H
#define GUARDRAIL_RECOVERY_CLASS_H

#include <linux/list.h>

#include "domain/module.h"
#include "recovery/teardown.h"

/**
 * struct guardrail_recovery_class - What a class of objects does when a domain dies and recovers.
 * @list: Place in the list of classes.
 * @name: Name of the class, for readers of this code.
 * @cannot_park: Why a recovery fails when @park does, for the log; NULL where @park never fails.
 * @not_restored: Why a recovery fails when @restore does, for the log; NULL without @restore.
 *
 * @outlives: True where the domain has objects that the kernel continues to use without it. Calls
 *	that fail meanwhile are restarted, and the domain's modules may have to be kept. In any
 *	context but NMI.
 * @entry_over: An entry was ended, or refused while its domain is dead: do what the kernel relies on all the same. In any
 *	context that entries run in.
 *
 * @silence: The kernel starts nothing new with the domain's objects.
 * @settle: Threads that wait for something that a dead domain never finishes continue. Called again
 *	and again while threads leave the domain.
 * @save: Record the settings of the domain's objects. The modules may be unloaded meanwhile.
 * @park: Take objects that stay from the domain's modules, in which no thread is any more. With
 *	@fails set, no driver will be loaded for them. Returns a negative error where one cannot
 *	stay, 1 where the modules must be kept in memory, else 0.
 * @restore: The modules are loaded anew: return the objects to them and restore their settings.
 *	Returns the number of failures.
 * @fail: The recovery failed: users of the objects get errors.
 * @forget: The recovery is over: free what @save noted.
 *
 * @begin_teardown: A teardown begins.
 * @unregister: Called for all that the domain holds: unregister it if it is of this class.
 * @end_use: Called for all that the domain holds, after @unregister was: wait until the kernel does not use it any more.
 * @release_devices: Take from devices that stay what the domain's drivers have set up in them.
 * @forget_types: Unregister types of objects that devices do not have.
 * @release: Called for each object that the domain holds, before its memory is freed: end it if it
 *   is of this class.
 * @keeps: True for an allocation of kmalloc() or a slab cache that must not be freed. It gets begin and size.
 * @free: Free an object that guardrail_release_later() noted. False where it is of another class.
 * @prepare_free: Make an allocation ready for its slab cache before it is freed. False where that is impossible and it
 *	has to stay.
 * @end_teardown: No driver will be loaded anew: free what only a new driver would use.
 * @exit: This module is unloaded.
 *
 * @quiesce: A device is restored next, whose domain lives: end what users have under way with it, and have them wait who would
 *	begin anew. Its lock is held.
 * @resume: It was restored, or could not be: users may begin again. Its lock has been held all the time.
 *
 * Any member after @not_restored may be NULL. All but @outlives and @entry_over are called in
 * process context and may sleep. @park and the teardown members hold teardown_lock of
 * recovery/recover.c. Exceptions are @free, @prepare_free and @end_teardown, which a recovery calls
 * after the reload.
 */
struct guardrail_recovery_class {
	struct list_head list;
	const char *name;
	const char *cannot_park;
	const char *not_restored;

	bool (*outlives)(u32 domain);
	void (*entry_over)(struct guardrail_record *record, bool ended);

	void (*silence)(u32 domain);
	void (*settle)(u32 domain);
	void (*save)(u32 domain);
	int (*park)(u32 domain, const struct guardrail_modules *modules, bool fails);
	unsigned int (*restore)(u32 domain);
	void (*fail)(u32 domain);
	void (*forget)(u32 domain);

	void (*begin_teardown)(u32 domain);
	void (*unregister)(const struct guardrail_held *held, struct guardrail_teardown *down);
	void (*end_use)(const struct guardrail_held *held, struct guardrail_teardown *down);
	void (*release_devices)(u32 domain);
	void (*forget_types)(u32 domain);
	void (*release)(const struct guardrail_held *held, struct guardrail_teardown *down);
	bool (*keeps)(u32 domain, unsigned long start, unsigned long size);
	bool (*free)(const struct guardrail_held *held);
	bool (*prepare_free)(u32 domain, unsigned long start, unsigned long size);
	void (*end_teardown)(u32 domain);
	void (*exit)(void);

	void (*quiesce)(struct device *dev);
	void (*resume)(struct device *dev);
};

/* The classes, in the order of their registration, which is the order that each step visits them in. */
extern struct list_head guardrail_recovery_classes;

/* Loops over the classes that have a member. */
#define for_each_class_with(class, member)					\
	list_for_each_entry(class, &guardrail_recovery_classes, list)		\
		if (!(class)->member) {			\
		} else

/**
 * guardrail_recovery_register() - Add a class.
 * @class: The class; it stays for good.
 *
 * Context: Init of this module, so the list needs no lock.
 */
void __init guardrail_recovery_register(struct guardrail_recovery_class *class);

/**
 * guardrail_outlives() - Test whether the domain has objects that the kernel continues to use
 *   without it.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 * Return: True where some class says so.
 */
bool guardrail_outlives(u32 domain);

/**
 * guardrail_entry_over() - Pass an entry that was ended or refused to all classes.
 * @record: Record of the entry.
 * @ended: It was ended; otherwise it was refused.
 *
 * Context: That of the entry.
 */
void guardrail_entry_over(struct guardrail_record *record, bool ended);

#endif /* GUARDRAIL_RECOVERY_CLASS_H */
