// SPDX-License-Identifier: GPL-2.0-or-later
/* The files in debugfs; debugfs.h names them. */
#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "base/limits.h"
#include "border/check.h"
#include "border/event.h"
#include "debugfs.h"
#include "domain/entry.h"
#include "domain/inject.h"
#include "domain/module.h"
#include "domain/stack.h"
#include "recovery/device.h"
#include "report/report.h"
#include "rights/table.h"
#include "rights/walk.h"
#include "transact/choose.h"

static struct dentry *folder;

static int domains_show(struct seq_file *seq, void *unused)
{
	struct guardrail_usage usage;
	u32 domain;

	for (domain = 1; domain < GUARDRAIL_DOMAINS; domain++) {
		struct guardrail_held_counts held;
		char names[128];

		guardrail_domain_name(domain, names, sizeof(names));
		guardrail_count_held(domain, &held);
		if (!names[0] && !held.ranges && !held.targets && !held.objects && !held.owned)
			continue;
		seq_printf(seq, "domain %u (%s): %lu writable bytes in %lu ranges, %lu call targets, %lu objects, %lu allocations of %lu bytes, %lu violations%s\n",
			   domain, names, held.bytes, held.ranges, held.targets, held.objects, held.owned, held.owned_bytes,
			   guardrail_violations(domain), guardrail_is_dead(domain) ? ", dead" : "");
	}
	guardrail_usage(&usage);
	seq_printf(seq, "table: %lu pages, %lu pages to map them, %lu in reserve\n", usage.table_pages, usage.tree_pages,
		   usage.reserve);
	seq_printf(seq, "side tables: %lu conflicts, %lu objects and allocations; %lu masks\n", usage.conflicts,
		   usage.records, usage.masks);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(domains);
DEFINE_SHOW_ATTRIBUTE(guardrail_violations);

/* Sums one count over all CPUs. */
#define SUM(field) ({						\
	unsigned long sum = 0;					\
	int cpu;						\
								\
	for_each_possible_cpu(cpu)				\
		sum += per_cpu(guardrail_slow_counts, cpu).field;	\
	sum;							\
})

static int stats_show(struct seq_file *seq, void *unused)
{
	seq_printf(seq, "slow write checks: %lu\n", SUM(write));
	seq_printf(seq, "range checks: %lu\n", SUM(range));
	seq_printf(seq, "per-CPU checks: %lu\n", SUM(percpu));
	seq_printf(seq, "slow call checks: %lu\n", SUM(icall));
	seq_printf(seq, "allowed by a part of a slot: %lu\n", SUM(part));
	seq_printf(seq, "allowed on the stack: %lu\n", SUM(stack));
	seq_printf(seq, "walks of the stack: %lu\n", guardrail_walks());
	seq_printf(seq, "denied: %lu\n", SUM(denied));
	seq_printf(seq, "tasks in modules: %lu\n", guardrail_inside());
	seq_printf(seq, "times the reserve was empty: %lu\n", guardrail_dry());
	seq_printf(seq, "events: %lu loads, %lu stores, %lu calls, %lu entries, %lu exits\n",
		   guardrail_event_count(GUARDRAIL_EVENT_LOAD), guardrail_event_count(GUARDRAIL_EVENT_STORE),
		   guardrail_event_count(GUARDRAIL_EVENT_CALL), guardrail_event_count(GUARDRAIL_EVENT_ENTRY),
		   guardrail_event_count(GUARDRAIL_EVENT_EXIT));
	guardrail_limits_show(seq);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stats);

/*
 * "DOMAIN N": the domain faults in the Nth of its next calls of the kernel. "DOMAIN N store": at the Nth of the next stores
 * of its transactions.
 */
static ssize_t inject_write(struct file *file, const char __user *text, size_t size, loff_t *offset)
{
	unsigned int domain, count;
	char line[32] = { }, what[8] = "";

	if (size >= sizeof(line))
		return -EINVAL;
	if (copy_from_user(line, text, size))
		return -EFAULT;
	if (sscanf(line, "%u %u %7s", &domain, &count, what) < 2 || !domain || domain >= GUARDRAIL_DOMAINS || !count || count > INT_MAX)
		return -EINVAL;
	if (what[0] && strcmp(what, "store"))
		return -EINVAL;
	if (what[0])
		guardrail_inject_store(domain, count);
	else
		guardrail_inject(domain, count);
	return size;
}

static int transact_show(struct seq_file *seq, void *unused)
{
	guardrail_choose_show(seq);
	return 0;
}

static int transact_open(struct inode *inode, struct file *file)
{
	return single_open(file, transact_show, NULL);
}

/* Hands on what is written as one text. */
static ssize_t write_text(const char __user *text, size_t size, int (*done)(char *text))
{
	char *line = size < PAGE_SIZE ? memdup_user_nul(text, size) : ERR_PTR(-EINVAL);
	int err;

	if (IS_ERR(line))
		return PTR_ERR(line);
	err = done(line);
	kfree(line);
	return err ?: size;
}

/* Each write is one choice. */
static ssize_t transact_write(struct file *file, const char __user *text, size_t size, loff_t *offset)
{
	return write_text(text, size, guardrail_choose_set);
}

static int checkpoint(char *text)
{
	return guardrail_device_checkpoint(strim(text));
}

static int restore(char *text)
{
	return guardrail_device_restore(strim(text));
}

/* Each write is the name of a device on its bus. */
static ssize_t checkpoint_write(struct file *file, const char __user *text, size_t size, loff_t *offset)
{
	return write_text(text, size, checkpoint);
}

static ssize_t restore_write(struct file *file, const char __user *text, size_t size, loff_t *offset)
{
	return write_text(text, size, restore);
}

static const struct file_operations transact_fops = {
	.owner = THIS_MODULE,
	.open = transact_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
	.write = transact_write,
};

static const struct file_operations checkpoint_fops = {
	.owner = THIS_MODULE,
	.write = checkpoint_write,
};

static const struct file_operations restore_fops = {
	.owner = THIS_MODULE,
	.write = restore_write,
};

static const struct file_operations inject_fops = {
	.owner = THIS_MODULE,
	.write = inject_write,
};

void __init guardrail_debugfs_init(void)
{
	folder = debugfs_create_dir("guardrail", NULL);
	debugfs_create_file("domains", 0400, folder, NULL, &domains_fops);
	debugfs_create_file("violations", 0400, folder, NULL, &guardrail_violations_fops);
	debugfs_create_file("stats", 0400, folder, NULL, &stats_fops);
	debugfs_create_file("inject", 0200, folder, NULL, &inject_fops);
	debugfs_create_file("transact", 0600, folder, NULL, &transact_fops);
	debugfs_create_file("checkpoint", 0200, folder, NULL, &checkpoint_fops);
	debugfs_create_file("restore", 0200, folder, NULL, &restore_fops);
}

void guardrail_debugfs_exit(void)
{
	debugfs_remove_recursive(folder);
}
