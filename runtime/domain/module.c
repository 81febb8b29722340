// SPDX-License-Identifier: GPL-2.0-or-later
/* Guarded modules: the rights that each receives when it is loaded, and loses when it is unloaded. */
#include <linux/jump_label.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/version.h>

#include "base/limits.h"
#include "base/symbols.h"
#include "domain/admission.h"
#include "domain/entry.h"
#include "domain/frames.h"
#include "domain/imports.h"
#include "domain/interrupts.h"
#include "domain/module.h"
#include "domain/ops.h"
#include "domain/registrations.h"
#include "domain/stack.h"
#include "rights/fields.h"
#include "rights/received.h"
#include "rights/references.h"
#include "rights/sent.h"
#include "rights/skb.h"
#include "rights/walk.h"

/* The number of leaks that are logged one by one. */
#define MAX_LEAKS 8

/* The most modules that are kept. */
#define MOST_KEPT 64

/**
 * struct entered - A guarded module that is loaded or kept.
 * @list: Place in modules.
 * @rcu: Frees it after a grace period.
 * @next_kept: The next kept module.
 * @guarded: What describes the module, in its own memory.
 * @module: The module.
 * @ready: Its init function has returned.
 * @gone: Its domain was cleared when it was unloaded.
 */
struct entered {
	struct list_head list;
	struct rcu_head rcu;
	struct entered *next_kept;
	const struct guardrail_module *guarded;
	struct module *module;
	bool ready;
	bool gone;
};

/* The guarded modules that are loaded, the last first; changed under modules_lock, and read under it or RCU. */
static LIST_HEAD(modules);
/*
 * Protects modules, changes of kept, and changes of the policy. Taken in any context but NMI; nothing nests inside.
 * Without it guardrail_is_kept() reads kept, since what is kept stays, and guardrail_guarded_at() both, since NMIs ask.
 * Calls by pointer ask, so guardrail_any_module() reads modules without it.
 */
static DEFINE_SPINLOCK(modules_lock);

/*
 * The kept modules: their domains were killed, and pointers into them may remain. They stay, and no
 * thread enters them.
 */
static struct entered *kept;
static unsigned int n_kept;
DEFINE_STATIC_KEY_FALSE(guardrail_keeps);

bool guardrail_is_kept(u32 domain, const void *p)
{
	const struct entered *entered;

	for (entered = smp_load_acquire(&kept); entered; entered = entered->next_kept)
		if (entered->guarded->domain == domain && within_module_core((unsigned long)p, entered->module))
			return true;
	return false;
}

const struct guardrail_module *guardrail_guarded_at(unsigned long addr)
{
	const struct guardrail_module *guarded = NULL;
	const struct entered *entered;

	list_for_each_entry_rcu(entered, &modules, list)
		if (within_module(addr, entered->module))
			guarded = entered->guarded;
	for (entered = smp_load_acquire(&kept); entered; entered = entered->next_kept)
		if (within_module_core(addr, entered->module))
			guarded = entered->guarded;
	return guarded;
}

bool guardrail_any_module(u32 domain, bool (*fits)(const struct guardrail_module *guarded, void *data), void *data)
{
	const struct entered *entered;
	bool found = false;

	rcu_read_lock();
	list_for_each_entry_rcu(entered, &modules, list) {
		found = entered->guarded->domain == domain && fits(entered->guarded, data);
		if (found)
			break;
	}
	rcu_read_unlock();
	return found;
}

bool guardrail_is_in_domain(u32 domain, unsigned long p)
{
	const struct entered *entered;
	bool found = false;

	rcu_read_lock();
	list_for_each_entry_rcu(entered, &modules, list)
		found |= entered->guarded->domain == domain && within_module(p, entered->module);
	rcu_read_unlock();
	return found;
}

int guardrail_change_policy(enum guardrail_policy wanted)
{
	struct entered *entered;
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&modules_lock, flags);
	list_for_each_entry(entered, &modules, list)
		if (!err && guardrail_policy_refuses(wanted, entered->guarded))
			err = -EPERM;
	if (!err)
		guardrail_set_policy(wanted);
	spin_unlock_irqrestore(&modules_lock, flags);
	return err;
}

/* Adds a module to the list, unless the policy refuses it. */
static int add(struct entered *entered)
{
	unsigned long flags;
	int err = 0;

	spin_lock_irqsave(&modules_lock, flags);
	if (guardrail_policy_refuses(guardrail_policy(), entered->guarded))
		err = -EPERM;
	else
		list_add_rcu(&entered->list, &modules);
	spin_unlock_irqrestore(&modules_lock, flags);
	return err;
}

bool guardrail_is_of(const void *p, const struct guardrail_modules *modules)
{
	unsigned int i;

	for (i = 0; i < modules->n; i++)
		if (within_module((unsigned long)p, modules->module[i]))
			return true;
	return false;
}

bool guardrail_module_is_there(u32 domain, const char *name)
{
	struct entered *entered;
	unsigned long flags;
	bool found = false;

	spin_lock_irqsave(&modules_lock, flags);
	list_for_each_entry(entered, &modules, list)
		found |= entered->guarded->domain == domain && entered->ready && !strcmp(entered->module->name, name);
	spin_unlock_irqrestore(&modules_lock, flags);
	return found;
}

void guardrail_modules_of(u32 domain, struct guardrail_modules *found)
{
	struct entered *entered;
	unsigned long flags;
	bool more = false;

	found->n = 0;
	spin_lock_irqsave(&modules_lock, flags);
	list_for_each_entry(entered, &modules, list) {
		if (entered->guarded->domain != domain || READ_ONCE(entered->gone))
			continue;
		more = found->n == MAX_MODULES;
		if (more)
			break;
		found->module[found->n] = entered->module;
		strscpy(found->name[found->n++], entered->module->name, MODULE_NAME_LEN);
	}
	spin_unlock_irqrestore(&modules_lock, flags);
	if (more)
		guardrail_limit_reached(GUARDRAIL_LIMIT_MODULES);
}

void guardrail_domain_name(u32 domain, char *text, size_t size)
{
	struct entered *entered;
	unsigned long flags;
	size_t used = 0;

	text[0] = 0;
	spin_lock_irqsave(&modules_lock, flags);
	list_for_each_entry(entered, &modules, list)
		if (entered->guarded->domain == domain)
			used += scnprintf(text + used, size - used, "%s%s", used ? " " : "", entered->guarded->name);
	spin_unlock_irqrestore(&modules_lock, flags);
}

/* True where the domain has another module. */
static bool has_others(u32 domain, const struct entered *than)
{
	struct entered *entered;
	unsigned long flags;
	bool found = false;

	spin_lock_irqsave(&modules_lock, flags);
	list_for_each_entry(entered, &modules, list)
		found |= entered != than && entered->guarded->domain == domain;
	spin_unlock_irqrestore(&modules_lock, flags);
	return found;
}

static int print_leak(const struct guardrail_held *held, void *data)
{
	unsigned int *printed = data;

	switch (held->right) {
	case GUARDRAIL_WRITE:
		pr_warn("leaked: %lu writable bytes at %016lx\n", held->len, held->start);
		break;
	case GUARDRAIL_OBJECT:
		pr_warn("leaked: object of type %u, %lu bytes at %016lx, in state %u\n", held->type, held->len, held->start,
			held->state);
		break;
	case GUARDRAIL_OWNER:
		pr_warn("leaked: allocation of kind %u, %lu bytes at %016lx\n", held->type, held->len, held->start);
		break;
	default:
		return 0;
	}
	return ++*printed >= MAX_LEAKS;
}

/* The last module of a domain is unloaded: reports and revokes what the domain still holds. */
static void end_domain(const struct guardrail_module *guarded)
{
	struct guardrail_held_counts held;
	unsigned int printed = 0;

	guardrail_tasks_forget(guarded->domain);
	guardrail_registrations_leave(guarded->domain, guarded->name);
	guardrail_count_held(guarded->domain, &held);
	if (held.ranges || held.targets || held.objects || held.owned) {
		pr_warn("module %s is gone, and domain %u still held %lu writable bytes in %lu ranges, %lu call targets, %lu objects, %lu allocations of %lu bytes\n",
			guarded->name, guarded->domain, held.bytes, held.ranges, held.targets, held.objects, held.owned,
			held.owned_bytes);
		guardrail_walk(guarded->domain, print_leak, &printed);
	}
	guardrail_revoke_all(guarded->domain);
	guardrail_irqs_forget(guarded->domain);
	guardrail_frames_forget(guarded->domain);
	guardrail_received_clear(guarded->domain);
	guardrail_sent_clear(guarded->domain);
}

static int set_ranges(u32 domain, const struct guardrail_range *ranges, u64 n)
{
	int err = 0;
	u64 i;

	for (i = 0; i < n && !err; i++) {
		if (!ranges[i].len)
			continue;
		err = guardrail_prepare(ranges[i].start, ranges[i].len);
		err = err ?: guardrail_grant_fresh(domain, ranges[i].start, ranges[i].len);
	}
	return err;
}

static void clear_ranges(u32 domain, const struct guardrail_range *ranges, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		if (guardrail_revoke(domain, ranges[i].start, ranges[i].len))
			pr_warn("no memory to take [%016lx, +%lu) away from domain %u exactly\n", ranges[i].start,
				ranges[i].len, domain);
}

/* Revokes the call targets: all, or those in the init section of the module. */
static void clear_targets(const struct entered *entered, bool only_init)
{
	const struct guardrail_module *guarded = entered->guarded;
	u64 i;

	for (i = 0; i < guarded->n_targets; i++)
		if (!only_init || within_module_init(guarded->targets[i].function, entered->module))
			guardrail_revoke(guarded->domain, guarded->targets[i].function, 1);
}

static int grant(const struct guardrail_module *guarded)
{
	int err = set_ranges(guarded->domain, guarded->writable, guarded->n_writable);
	u64 i;

	err = err ?: set_ranges(guarded->domain, guarded->init_only, guarded->n_init_only);
	for (i = 0; i < guarded->n_targets && !err; i++)
		err = guardrail_grant_call(guarded->domain, guarded->targets[i].function);
	return err;
}

/*
 * Revokes the rights that the module received, and with the last module all that the domain holds.
 */
static void leave(struct entered *entered)
{
	const struct guardrail_module *guarded = entered->guarded;
	unsigned long flags;

	spin_lock_irqsave(&modules_lock, flags);
	list_del_rcu(&entered->list);
	guardrail_imports_gone();
	spin_unlock_irqrestore(&modules_lock, flags);
	guardrail_domain_ops->transact_module(guarded, false);
	clear_ranges(guarded->domain, guarded->writable, guarded->n_writable);
	clear_targets(entered, false);
	guardrail_fields_forget(entered->module);
	guardrail_skbs_forget(entered->module);
	if (!has_others(guarded->domain, entered))
		end_domain(guarded);
	/* The kernel, too, waits for a grace period before it frees a module, with what describes it. */
	kfree_rcu(entered, rcu);
}

bool guardrail_can_keep(unsigned int n)
{
	if (n_kept + n <= MOST_KEPT)
		return true;
	guardrail_limit_reached(GUARDRAIL_LIMIT_KEPT);
	return false;
}

/**
 * struct use - What the kernel notes where a module uses another; since Linux 7 only the kernel declares it.
 * @source_list: Place in the list of the module that uses.
 * @target_list: Place in the list of the module that is used.
 * @source: The module that uses.
 * @target: The module that is used.
 */
struct use {
	struct list_head source_list, target_list;
	struct module *source, *target;
};

/* In sysfs, the name of a module also stands in the folders of the modules that it uses, and in that of BTF. */
static void forget_name(const struct module *module)
{
	struct kobject **types = (struct kobject **)guardrail_find_symbol("btf_kobj");
	struct bin_attribute file = { .attr.name = module->name };
	struct use *use;

	list_for_each_entry(use, &module->target_list, target_list)
		if (use->source == module && use->target->holders_dir)
			sysfs_remove_link(use->target->holders_dir, module->name);
	if (types && *types)
		sysfs_remove_bin_file(*types, &file);
}

/* Keeps the module under another name and without its exports, so that a new one of its name can be loaded. */
static int keep(struct entered *entered)
{
	struct module *module = entered->module;
	char name[MODULE_NAME_LEN];
	unsigned long flags;
	int err;

	scnprintf(name, sizeof(name), "%.*s.%u", (int)MODULE_NAME_LEN - 5, entered->guarded->name, n_kept + 1);
	if (!try_module_get(module))
		return -ENOENT;
	err = kobject_rename(&module->mkobj.kobj, name);
	if (err) {
		module_put(module);
		return err;
	}
	forget_name(module);
	strscpy(module->name, name, sizeof(module->name));
	WRITE_ONCE(module->num_syms, 0);
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
	WRITE_ONCE(module->num_gpl_syms, 0);
#endif
	guardrail_fields_forget(module);
	guardrail_skbs_forget(module);
	spin_lock_irqsave(&modules_lock, flags);
	list_del_rcu(&entered->list);
	guardrail_imports_gone();
	entered->next_kept = kept;
	smp_store_release(&kept, entered);
	spin_unlock_irqrestore(&modules_lock, flags);
	guardrail_domain_ops->transact_module(entered->guarded, false);
	n_kept++;
	return 0;
}

static struct entered *last_of(u32 domain)
{
	struct entered *entered, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&modules_lock, flags);
	list_for_each_entry(entered, &modules, list)
		if (!found && entered->guarded->domain == domain)
			found = entered;
	spin_unlock_irqrestore(&modules_lock, flags);
	return found;
}

int guardrail_keep_modules(u32 domain)
{
	struct entered *entered;
	int err = 0;

	static_branch_enable(&guardrail_keeps);
	while (!err && (entered = last_of(domain))) {
		err = keep(entered);
		if (!err)
			pr_info("the old %s stays as %s, for what may still lead to it\n", entered->guarded->name, entered->module->name);
	}
	return err;
}

static int refuse(const struct guardrail_module *guarded)
{
	if (guarded->magic != GUARDRAIL_MAGIC) {
		pr_err("a module was refused: it was not made by guardrail, since what describes it begins with %08x\n",
		       guarded->magic);
		return -ENOEXEC;
	}
	if (guarded->abi != GUARDRAIL_ABI) {
		pr_err("a module was refused: it was guarded for version %u of the interface and this guardrail.ko has version %u; guard it again\n",
		       guarded->abi, GUARDRAIL_ABI);
		return -ENOEXEC;
	}
	if (!is_domain(guarded->domain) || guarded->flags & ~GUARDRAIL_FLAGS || !guarded->name) {
		pr_err("a module was refused: domain %u with flags %x is nothing that this guardrail.ko knows\n",
		       guarded->domain, guarded->flags);
		return -ENOEXEC;
	}
	return 0;
}

/*
 * An init or exit function was ended, and did not undo its work. All further entries are refused,
 * so that everything is revoked instead.
 */
static void give_up(const struct guardrail_module *guarded, const char *function)
{
	char names[64];

	if (guardrail_is_dead(guarded->domain))
		return;
	guardrail_domain_name(guarded->domain, names, sizeof(names));
	guardrail_kill(guarded->domain);
	pr_err("domain %u (%s) is killed: the %s function of %s was ended\n", guarded->domain, names, function, guarded->name);
}

/* The init function may write its own part of the stack, like any other entry. */
static noinline int call_init(const struct guardrail_module *guarded)
{
	const struct guardrail_entry entry = { .domain = guarded->domain, .dead = -EFAULT, .function = "init" };
	struct guardrail_record record;
	int err = guardrail_enter(&entry, &record);

	if (err < 0)
		return guardrail_is_dead(guarded->domain) ? -EFAULT : -ENOMEM;
	if (err)
		give_up(guarded, "init");
	err = err ? -EFAULT : guarded->init();
	guardrail_leave(&record);
	return err;
}

/* The exit function cannot fail: what it does not undo when it is ended is revoked without it. */
static noinline void call_exit(const struct guardrail_module *guarded)
{
	const struct guardrail_entry entry = {
		.domain = guarded->domain, .flags = GUARDRAIL_ENTRY_EXIT, .function = "exit",
	};
	struct guardrail_record record;
	int err;

	if (guardrail_is_dead(guarded->domain)) {
		pr_warn("the exit function of %s is not called, since its domain is dead\n", guarded->name);
		return;
	}
	/* Without memory for a note it may write all of the stack: it has to be called. */
	err = guardrail_enter(&entry, &record);
	if (err > 0)
		give_up(guarded, "exit");
	else
		guarded->exit();
	if (err >= 0)
		guardrail_leave(&record);
}

/*
 * The module is unloaded. What ended entries did not release is released with the last module of
 * the domain.
 */
static void take_back(struct entered *entered)
{
	u32 domain = entered->guarded->domain;

	if (test_bit(domain, &guardrail_ended_domains) && !has_others(domain, entered))
		guardrail_kill(domain);
	if (guardrail_is_dead(domain))
		guardrail_domain_ops->clear_dead(domain, &entered->gone);
}

/* What is noted of a module that may enter; an error where it is refused. */
static struct entered *identify(const struct guardrail_module *guarded)
{
	struct entered *entered;
	int err = refuse(guarded);

	if (err)
		return ERR_PTR(err);
	entered = kzalloc(sizeof(*entered), GFP_KERNEL);
	if (!entered)
		return ERR_PTR(-ENOMEM);
	entered->guarded = guarded;
	entered->module = guardrail_module_at((unsigned long)guarded);
	if (entered->module) {
		err = guardrail_admit(entered->module);
	} else {
		pr_err("%s was refused: what describes it lies in no module\n", guarded->name);
		err = -ENOEXEC;
	}
	if (!err)
		return entered;
	kfree(entered);
	return ERR_PTR(err);
}

int guardrail_module_enter(const struct guardrail_module *guarded)
{
	struct entered *entered = identify(guarded);
	int err;

	if (IS_ERR(entered))
		return PTR_ERR(entered);
	if (!has_others(guarded->domain, NULL))
		guardrail_revive(guarded->domain);
	guardrail_stack_forget();
	err = add(entered);
	if (err) {
		kfree(entered);
		return err;
	}
	err = guardrail_received_prepare(guarded->domain) ?: guardrail_domain_ops->transact_module(guarded, true) ?: grant(guarded);
	if (err)
		pr_err("%s was refused: no rights could be given to its data (error %d)\n", guarded->name, err);
	else if (guarded->init)
		err = call_init(guarded);
	clear_ranges(guarded->domain, guarded->init_only, guarded->n_init_only);
	if (err) {
		take_back(entered);
		leave(entered);
	} else {
		clear_targets(entered, true);
		WRITE_ONCE(entered->ready, true);
	}
	return err;
}
EXPORT_SYMBOL_GPL(guardrail_module_enter);

void guardrail_module_leave(const struct guardrail_module *guarded)
{
	struct entered *entered, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&modules_lock, flags);
	list_for_each_entry(entered, &modules, list)
		if (entered->guarded == guarded)
			found = entered;
	spin_unlock_irqrestore(&modules_lock, flags);
	/* The module was refused, or has left already. */
	if (!found)
		return;
	if (guarded->exit)
		call_exit(guarded);
	take_back(found);
	leave(found);
}
EXPORT_SYMBOL_GPL(guardrail_module_leave);
