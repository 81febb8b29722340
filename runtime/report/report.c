// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Violations in the log. Each site is reported in full once for each domain, and counted from then on. No lock is held
 * while anything is printed: the driver of the console may be guarded itself.
 */
#include <linux/kallsyms.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "base/limits.h"
#include "base/region.h"
#include "base/symbols.h"
#include "domain/frames.h"
#include "domain/locks.h"
#include "domain/module.h"
#include "domain/ops.h"
#include "domain/policy.h"
#include "domain/stack.h"
#include "report/report.h"
#include "rights/conflict.h"
#include "transact/transaction.h"

#define MAX_SITES 1024
#define NAME_LENGTH 128

/**
 * struct site - A site that violated something.
 * @list: Place in sites.
 * @ip: Address of the site.
 * @domain: Its domain.
 * @count: How often it did.
 * @what: What it did, in words.
 * @needs: What it lacked.
 * @name: Its name: the module may be unloaded before a user reads it.
 */
struct site {
	struct list_head list;
	unsigned long ip;
	u32 domain;
	unsigned long count;
	char what[112];
	char needs[48];
	char name[NAME_LENGTH];
};

static LIST_HEAD(sites);
/* Protects sites, their counts, n_sites and n_elsewhere. Taken in any context but NMI; nothing nests inside. */
static DEFINE_SPINLOCK(sites_lock);
static unsigned int n_sites;
static unsigned long n_elsewhere;	/* violations at sites without room in the list */
static atomic_long_t violations[GUARDRAIL_DOMAINS];

/* Counts the violation; true where its site is new. */
static bool is_new(const struct guardrail_violation *violation, const char *name)
{
	struct site *site, *fresh = kzalloc(sizeof(*fresh), GFP_ATOMIC | __GFP_NOWARN);
	unsigned long flags;
	bool new = false, full = false;

	spin_lock_irqsave(&sites_lock, flags);
	list_for_each_entry(site, &sites, list) {
		if (site->ip == violation->ip && site->domain == violation->domain &&
		    !strncmp(site->needs, violation->needs, sizeof(site->needs) - 1) && !strcmp(site->name, name)) {
			site->count++;
			goto out;
		}
	}
	new = fresh && n_sites < MAX_SITES;
	if (!new) {
		n_elsewhere++;
		full = n_sites == MAX_SITES;
		goto out;
	}
	fresh->ip = violation->ip;
	fresh->domain = violation->domain;
	fresh->count = 1;
	strscpy(fresh->what, violation->what, sizeof(fresh->what));
	strscpy(fresh->needs, violation->needs, sizeof(fresh->needs));
	strscpy(fresh->name, name, sizeof(fresh->name));
	list_add_tail(&fresh->list, &sites);
	n_sites++;
	fresh = NULL;
out:
	spin_unlock_irqrestore(&sites_lock, flags);
	if (full)
		guardrail_limit_reached(GUARDRAIL_LIMIT_SITES);
	kfree(fresh);
	return new;
}

/* Names a right to a byte. */
static const char *right_name(u8 right)
{
	static const char *const names[] = {
		[GUARDRAIL_READ] = "read", [GUARDRAIL_WRITE] = "write", [GUARDRAIL_CALL] = "icall",
		[GUARDRAIL_OWNER] = "owner", [GUARDRAIL_OBJECT] = "object", [GUARDRAIL_OBJECT_WRITE] = "object",
		[GUARDRAIL_SKB] = "object",
	};

	return right < ARRAY_SIZE(names) && names[right] ? names[right] : "read";
}

const char *guardrail_held_at(unsigned long addr, u32 domain)
{
	u8 rights[GUARDRAIL_SLOT];

	if (!is_domain(domain) || !is_kernel_range(addr, 1))
		return "read";
	guardrail_slot_rights(tag_of(addr), domain, rights);
	return right_name(rights[addr % GUARDRAIL_SLOT]);
}

/* Prints the rights of other domains to the byte. */
static void print_others(unsigned long addr, u32 domain)
{
	u32 other;

	for (other = 1; other < GUARDRAIL_DOMAINS; other++) {
		const char *right = other == domain ? "read" : guardrail_held_at(addr, other);
		char names[64];

		if (!strcmp(right, "read"))
			continue;
		guardrail_domain_name(other, names, sizeof(names));
		pr_err("domain %u (%s) holds %s there\n", other, names, right);
	}
}

/* Prints a description of the memory at an address. */
static void print_target(unsigned long addr)
{
	struct guardrail_region region;
	struct stack_info info;
	char *name;

	if (addr < KERNEL_HALF) {
		pr_err("target: %s\n", addr < TASK_SIZE_MAX ? "user memory" : "no address of anything");
		return;
	}
	if (guardrail_stack_of(addr, &info)) {
		const char *use = guardrail_any_frames() ? guardrail_frame_use(addr, 1) : NULL;
		const char *what = "outside of the part in use by this code";

		if (guardrail_on_stack(addr, 1))
			what = guardrail_returns_by(addr, 1, 0) ? "where functions keep what they return by" : "in the part in use by this code";
		pr_err("target: the current stack of %s[%d], from %px to %px, %s%s\n", current->comm, task_pid_nr(current), info.begin, info.end,
		       use ? "where the kernel has " : what, use ?: "");
		return;
	}
	/* The name has an offset and a size behind it, which data does not have. */
	name = kmalloc(KSYM_SYMBOL_LEN, GFP_ATOMIC | __GFP_NOWARN);
	if (name && sprint_symbol(name, addr) && strchr(name, '+')) {
		const char *size = strchrnul(name, '/'), *module = strchrnul(name, ' ');

		pr_err("target: %.*s%s\n", (int)(size - name), name, module);
		kfree(name);
		return;
	}
	kfree(name);
	if (is_vmalloc_addr((void *)addr) && (!in_task() || irqs_disabled())) {
		/* More details need a lock, which can be taken only in other contexts. */
		pr_err("target: vmalloc memory\n");
		return;
	}
	if (virt_addr_valid((void *)addr) && !guardrail_region_of(addr, &region)) {
		/* The kernel warns where it is asked for more. */
		pr_err("target: behind the last object of a slab\n");
		return;
	}
	if (is_vmalloc_addr((void *)addr) || virt_addr_valid((void *)addr)) {
		pr_err("target:");
		mem_dump_obj((void *)addr);
		return;
	}
	pr_err("target: no known memory\n");
}

/* Prints the stack, from the guarded code on. */
static void print_trace(void)
{
	unsigned long entries[24];
	unsigned int n = guardrail_trace(entries, ARRAY_SIZE(entries)), i = 0;

	while (i < n && within_module(entries[i], THIS_MODULE))
		i++;
	pr_err("call trace of %s[%d] on CPU %d:\n", current->comm, task_pid_nr(current), raw_smp_processor_id());
	for (; i < n; i++)
		pr_err("  %pS\n", (void *)entries[i]);
}

static void kill(const struct guardrail_violation *violation, const char *name)
{
	char why[160];

	if (guardrail_rolls_back(violation->domain))
		return;
	scnprintf(why, sizeof(why), "%s %016lx by %s", violation->what, violation->addr, name);
	guardrail_domain_ops->recover(violation->domain, why);
}

static void __noreturn end_thread(void)
{
	pr_err("the thread is ended, since the policy is 'oops'\n");
	BUG();
}

/* Prints the violation if its site is new. @first is the byte that it is about; @name gets the name of the site. */
static void print(const struct guardrail_violation *violation, unsigned long first, char name[NAME_LENGTH])
{
	atomic_long_inc(&violations[violation->domain % GUARDRAIL_DOMAINS]);
	snprintf(name, NAME_LENGTH, "%pS", (void *)violation->ip);
	if (is_new(violation, name)) {
		pr_err("violation: %s %016lx by %s: domain %u holds %s, needs %s\n", violation->what, violation->addr,
		       name, violation->domain, violation->holds, violation->needs);
		if (first != violation->addr)
			pr_err("the first byte without it is %016lx\n", first);
		print_others(first, violation->domain);
		print_target(first);
		print_trace();
	}
}

/* Reports the violation and does what the policy says. */
static void report(const struct guardrail_violation *violation, unsigned long first)
{
	char name[NAME_LENGTH];

	print(violation, first, name);
	switch (guardrail_policy()) {
	case GUARDRAIL_POLICY_OOPS:
		end_thread();
	case GUARDRAIL_POLICY_RECOVER:
		kill(violation, name);
		guardrail_unwind(violation->domain);
		break;
	case GUARDRAIL_POLICY_FAIL:
		guardrail_rolls_back(violation->domain);
		guardrail_unwind(violation->domain);
		break;
	default:
		break;
	}
}

void guardrail_report(const struct guardrail_violation *violation)
{
	report(violation, violation->addr);
}
EXPORT_SYMBOL_GPL(guardrail_report);

unsigned long guardrail_violations(u32 domain)
{
	return domain < GUARDRAIL_DOMAINS ? atomic_long_read(&violations[domain]) : 0;
}
EXPORT_SYMBOL_GPL(guardrail_violations);

void guardrail_report_write(unsigned long addr, unsigned long size, unsigned long first, u32 domain, unsigned long ip)
{
	char what[48];
	struct guardrail_violation violation = {
		.what = what, .addr = addr, .ip = ip, .domain = domain, .holds = guardrail_held_at(first, domain), .needs = "write",
	};

	snprintf(what, sizeof(what), "write of %lu bytes at", size);
	report(&violation, first);
}

void guardrail_report_beyond(unsigned long addr, unsigned long size, u32 domain, unsigned long ip)
{
	char what[64];
	struct guardrail_violation violation = {
		.what = what, .addr = addr, .ip = ip, .domain = domain, .holds = "another variable", .needs = "the array itself",
	};

	snprintf(what, sizeof(what), "write of %lu bytes outside of the array, at", size);
	report(&violation, addr);
}

void guardrail_report_icall(unsigned long target, u32 domain, unsigned long ip)
{
	struct guardrail_violation violation = {
		.what = "call of", .addr = target, .ip = ip, .domain = domain, .holds = guardrail_held_at(target, domain),
		.needs = "icall",
	};

	report(&violation, target);
}

/* Reports what an entry leaves behind; true where that is to be undone. */
static bool report_left(const struct guardrail_violation *violation)
{
	char name[NAME_LENGTH];

	print(violation, violation->addr, name);
	switch (guardrail_policy()) {
	case GUARDRAIL_POLICY_OOPS:
		end_thread();
	case GUARDRAIL_POLICY_RECOVER:
		kill(violation, name);
		return true;
	case GUARDRAIL_POLICY_FAIL:
		guardrail_rolls_back(violation->domain);
		return true;
	default:
		return false;
	}
}

bool guardrail_report_lock(const struct guardrail_lock *lock, const char *kind, const struct guardrail_entry *entry)
{
	char what[112];
	struct guardrail_violation violation = {
		.what = what, .addr = lock->p, .ip = lock->ip, .domain = entry->domain, .holds = "the lock", .needs = "no lock",
	};

	scnprintf(what, sizeof(what), "return from %s with a %s taken at", entry->function, kind);
	return report_left(&violation);
}

bool guardrail_report_thread(unsigned long field, const struct guardrail_entry *entry, unsigned long ip)
{
	char what[112];
	struct guardrail_violation violation = {
		.what = what, .addr = field, .ip = ip, .domain = entry->domain, .holds = "a changed one", .needs = "that of before",
	};

	scnprintf(what, sizeof(what), "return from %s with another state of its thread at", entry->function);
	return report_left(&violation);
}

bool guardrail_report_counts(const char *which, const struct guardrail_record *record)
{
	const struct guardrail_entry *entry = record->entry;
	char what[208];
	struct guardrail_violation violation = {
		.what = what, .addr = record->call.caller, .ip = record->saved.ip, .domain = entry->domain, .holds = "a changed state",
		.needs = "that of before",
	};

	scnprintf(what, sizeof(what), "return from %s with %sto", entry->function, which);
	return report_left(&violation);
}

void guardrail_report_frame(const struct guardrail_noted *noted, const char *name, u32 domain, unsigned long ip)
{
	char what[112];
	struct guardrail_violation violation = {
		.what = what, .addr = noted->p, .ip = ip, .domain = domain, .holds = name, .needs = "nothing that is in use",
	};

	scnprintf(what, sizeof(what), "return with %s on the stack, handed over by %ps, at", name, (void *)noted->ip);
	guardrail_report(&violation);
}

void guardrail_report_loop(u32 domain, const char *function, unsigned int seconds, unsigned long ip)
{
	if (guardrail_ends_threads())
		pr_warn("%s of domain %u has not returned after %u s of running, and is ended\n", function, domain, seconds);
	else
		pr_err("fault: endless loop by %pS: domain %u\n", (void *)ip, domain);
}

void guardrail_report_storm(u32 domain, const char *function, unsigned long irq)
{
	char why[160];

	scnprintf(why, sizeof(why), "interrupts without an end, of number %lu, handled by %s", irq, function);
	pr_err("fault: %s: domain %u; the interrupt is disabled\n", why, domain);
	if (guardrail_policy() == GUARDRAIL_POLICY_RECOVER)
		guardrail_domain_ops->recover(domain, why);
}

void guardrail_faulted(u32 domain, const char *what, unsigned long ip)
{
	char why[160];

	scnprintf(why, sizeof(why), "%s by %pS", what, (void *)ip);
	pr_err("fault: %s: domain %u\n", why, domain);
	if (guardrail_policy() == GUARDRAIL_POLICY_OOPS)
		end_thread();
	if (!guardrail_rolls_back(domain) && guardrail_policy() == GUARDRAIL_POLICY_RECOVER)
		guardrail_domain_ops->recover(domain, why);
	guardrail_unwind(domain);
}

int guardrail_violations_show(struct seq_file *seq, void *unused)
{
	struct site *site;
	unsigned long flags;

	spin_lock_irqsave(&sites_lock, flags);
	list_for_each_entry(site, &sites, list)
		seq_printf(seq, "%lu times: %s by %s: domain %u needs %s\n", site->count, site->what, site->name,
			   site->domain, site->needs);
	if (n_elsewhere)
		seq_printf(seq, "%lu times at places that are not listed\n", n_elsewhere);
	spin_unlock_irqrestore(&sites_lock, flags);
	return 0;
}

void guardrail_report_exit(void)
{
	struct site *site, *next;

	list_for_each_entry_safe(site, next, &sites, list)
		kfree(site);
}
