// SPDX-License-Identifier: GPL-2.0-or-later
/* Follows the protocols of all domains, reports violations of their rules, and shows states and counts in debugfs. */
#include <linux/debugfs.h>
#include <linux/jiffies.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/seq_file.h>
#include <linux/workqueue.h>

#include "domain.h"

/* Violations of a domain that are printed; all are counted. */
#define PRINTED 20

/* Protects changes of the list; nothing nests inside. */
static DEFINE_MUTEX(lock);
static LIST_HEAD(domains);
static struct dentry *folder;

const char *active_box_name(struct active_domain *d, unsigned int box)
{
	const struct active_protocol *p;

	if (box >= ACTIVE_BOXES_ALL || d->part_of[box] >= d->part_count)
		return "?";
	p = d->parts[d->part_of[box]].protocol;
	return box >= ACTIVE_FIRST_OUT ? p->outs[box - p->first_out].name : p->ins[box - p->first_in].name;
}

static const struct active_state *state_of(const struct active_part *part)
{
	return &part->protocol->states[part->state];
}

/* Counts a violation, and prints and announces it unless there were many. Context: any. */
void active_report(struct active_domain *d, unsigned int rule, const char *format, ...)
{
	char text[ACTIVE_TEXT];
	unsigned int i;
	va_list args;
	size_t n;

	atomic_inc(&d->violations[rule]);
	if (atomic_inc_return(&d->printed) > PRINTED)
		return;
	va_start(args, format);
	n = vscnprintf(text, sizeof(text), format, args);
	va_end(args);
	pr_warn("guardrail: active %s: rule %u: %s\n", d->name, rule, text);
	n += scnprintf(text + n, sizeof(text) - n, "\n%s", d->name);
	for (i = 0; i < d->part_count; i++)
		n += scnprintf(text + n, sizeof(text) - n, "%s %s %s", i ? "," : ":", d->parts[i].protocol->name,
			       state_of(&d->parts[i])->name);
	active_violated(rule, d->stack, text, d->main);
}

void active_moved(struct active_domain *d, struct active_part *part, u8 state)
{
	const struct active_protocol *p = part->protocol;
	const struct active_state *s = &p->states[state];
	const u8 *row = p->next + state * (p->in_count + p->out_count);

	part->state = state;
	part->row_in = row - p->first_in;
	part->row_out = row + p->in_count - p->first_out;
	d->enabled = (d->enabled & ~part->mask) | s->enabled;
	part->need = s->flags & ACTIVE_STATE_FAIR && s->enabled ? s->enabled : ~0ULL;
	if (s->flags & ACTIVE_STATE_OWED) {
		WRITE_ONCE(part->since, jiffies);
		part->late = false;
	}
	d->changed = true;
}

void active_forbidden(struct active_domain *d, struct active_part *part, unsigned int box)
{
	active_report(d, 1, "it emits %s_%s in the state %s, where that is not allowed", part->protocol->name,
		      active_box_name(d, box), state_of(part)->name);
}

/* Rule 3: some protocol must be sure to send something that the driver waits for. */
void active_check_wait(struct active_domain *d)
{
	unsigned int i;

	d->checked = d->wait;
	d->changed = false;
	for (i = 0; i < d->part_count; i++)
		if (!(d->parts[i].need & ~d->wait))
			return;
	active_report(d, 3, "it waits for 0x%llx, which no protocol is sure to send; %s is in the state %s", d->wait,
		      d->part_count ? d->parts[0].protocol->name : "?", d->part_count ? state_of(&d->parts[0])->name : "?");
}

void active_check_end(struct active_domain *d)
{
	unsigned int i;

	for (i = 0; i < d->part_count; i++)
		if (!(state_of(&d->parts[i])->flags & ACTIVE_STATE_FINAL))
			active_report(d, 5, "it ends while %s is in the state %s", d->parts[i].protocol->name,
				      state_of(&d->parts[i])->name);
}

static void check_owed(struct active_domain *d)
{
	unsigned int i;

	for (i = 0; i < d->part_count; i++) {
		struct active_part *part = &d->parts[i];
		const struct active_state *s = state_of(part);

		if (!(s->flags & ACTIVE_STATE_OWED) || part->late ||
		    time_before(jiffies, READ_ONCE(part->since) + active_deadline * HZ))
			continue;
		part->late = true;
		active_report(d, 4, "%s has been in the state %s for %u s", part->protocol->name, s->name, active_deadline);
	}
}

static void look(struct work_struct *work)
{
	struct active_domain *d;

	mutex_lock(&lock);
	list_for_each_entry(d, &domains, all)
		check_owed(d);
	mutex_unlock(&lock);
	schedule_delayed_work(to_delayed_work(work), HZ);
}
static DECLARE_DELAYED_WORK(looker, look);

unsigned int active_violations(struct active *a, unsigned int rule)
{
	return rule < ACTIVE_RULES ? atomic_read(&active_domain(a)->violations[rule]) : 0;
}
EXPORT_SYMBOL_GPL(active_violations);

static int domain_show(struct seq_file *file, void *unused)
{
	struct active_domain *d = file->private;
	unsigned int i, box;

	for (i = 0; i < d->part_count; i++)
		seq_printf(file, "%s: %s\n", d->parts[i].protocol->name, state_of(&d->parts[i])->name);
	for (box = 0; box < ACTIVE_BOXES_ALL; box++)
		if (d->part_of[box] < d->part_count && d->counts[box])
			seq_printf(file, "%s %s %s: %llu\n", box < ACTIVE_FIRST_OUT ? "in" : "out",
				   d->parts[d->part_of[box]].protocol->name, active_box_name(d, box), d->counts[box]);
	seq_printf(file, "runs: %llu by senders, %llu by the tasklet, %llu by the thread\n", d->runs[ACTIVE_BY_SENDER],
		   d->runs[ACTIVE_BY_TASKLET], d->runs[ACTIVE_BY_THREAD]);
	seq_puts(file, "violations:");
	for (i = 1; i < ACTIVE_RULES; i++)
		seq_printf(file, " %d", atomic_read(&d->violations[i]));
	seq_putc(file, '\n');
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(domain);

void active_monitor_add(struct active_domain *d)
{
	struct active_domain *other;
	char name[ACTIVE_NAME];
	unsigned int n = 1;

	mutex_lock(&lock);
	strscpy(name, d->name, sizeof(name));
again:
	list_for_each_entry(other, &domains, all)
		if (!strcmp(other->name, d->name)) {
			snprintf(d->name, sizeof(d->name), "%.*s-%u", ACTIVE_NAME - 12, name, ++n);
			goto again;
		}
	list_add_tail_rcu(&d->all, &domains);
	d->file = debugfs_create_file(d->name, 0400, folder, d, &domain_fops);
	mutex_unlock(&lock);
}

void active_monitor_remove(struct active_domain *d)
{
	debugfs_remove(d->file);
	mutex_lock(&lock);
	list_del_rcu(&d->all);
	mutex_unlock(&lock);
	/* A trace may be looking at the domain. */
	synchronize_rcu();
}

struct active_domain *active_domain_at(unsigned long sp)
{
	struct active_domain *d;

	list_for_each_entry_rcu(d, &domains, all)
		if (sp - ((unsigned long)d->stack - PAGE_SIZE) < THREAD_SIZE + PAGE_SIZE)
			return d;
	return NULL;
}

int active_monitor_start(void)
{
	folder = debugfs_create_dir("guardrail_active", NULL);
	schedule_delayed_work(&looker, HZ);
	return 0;
}

void active_monitor_stop(void)
{
	cancel_delayed_work_sync(&looker);
	debugfs_remove(folder);
}
