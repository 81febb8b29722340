// SPDX-License-Identifier: GPL-2.0-or-later
/* Which entries are transactions; transact/choose.h describes it. */
#include <linux/glob.h>
#include <linux/hash.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "base/limits.h"
#include "domain/entry.h"
#include "rights/aside.h"
#include "transact/choose.h"
#include "transact/device.h"
#include "transact/log.h"

#define BITS 8

/* Entries by their address. Changed under choose_mutex, and read under RCU. */
static struct hlist_head buckets[1 << BITS];
static LIST_HEAD(all);
static DEFINE_MUTEX(choose_mutex);

/* The most notes of choices. */
#define MOST_NOTES 1024

/**
 * struct note - A choice that waits until its module is loaded again, since the domain of the module is dead.
 * @list: Place among all notes.
 * @module: Name of the module.
 * @function: Name of the entry.
 * @every: As in struct guardrail_chosen.
 * @argument: As there.
 * @value: As there.
 * @comm: As there.
 */
struct note {
	struct list_head list;
	char module[MODULE_NAME_LEN];
	const char *function;
	unsigned int every;
	int argument;
	unsigned long value;
	char comm[TASK_COMM_LEN];
};

/* Changed and read under choose_mutex. */
static LIST_HEAD(notes);
static unsigned int n_notes;

static struct guardrail_chosen *find(const struct guardrail_entry *entry)
{
	struct guardrail_chosen *chosen;

	hlist_for_each_entry_rcu(chosen, &buckets[hash_ptr(entry, BITS)], node)
		if (chosen->entry == entry)
			return chosen;
	return NULL;
}

static bool fits(const struct guardrail_chosen *chosen, const struct guardrail_record *record)
{
	if (chosen->argument >= 0 && record->call.args[chosen->argument] != chosen->value)
		return false;
	return !chosen->comm[0] || !strncmp(chosen->comm, current->comm, TASK_COMM_LEN);
}

struct guardrail_chosen *guardrail_choose(const struct guardrail_record *record)
{
	struct guardrail_chosen *chosen;
	unsigned int every;

	rcu_read_lock();
	chosen = find(record->entry);
	every = chosen ? READ_ONCE(chosen->every) : 0;
	if (!every || !fits(chosen, record) || (every > 1 && atomic_inc_return(&chosen->turn) % every))
		chosen = NULL;
	/* The entry is in the module, which stays as long, and so does this. */
	rcu_read_unlock();
	return chosen;
}

/* Why an entry cannot be a transaction, in words; NULL where it can. */
static const char *obstacle(const struct guardrail_entry *entry)
{
	if (entry->flags & GUARDRAIL_ENTRY_BINDS)
		return "it binds or unbinds a device";
	if (entry->flags & GUARDRAIL_ENTRY_POWER)
		return "it saves or restores the device, which transactions rely on";
	return NULL;
}

static void set_every(struct guardrail_chosen *chosen, unsigned int every)
{
	if (every && !chosen->every)
		static_branch_inc(&guardrail_transacts);
	else if (!every && chosen->every)
		static_branch_dec(&guardrail_transacts);
	WRITE_ONCE(chosen->every, every);
}

/* Which of its calls are transactions before anybody has chosen. */
static unsigned int every_at_first(const struct guardrail_entry *entry)
{
	return entry->flags & GUARDRAIL_ENTRY_SELECTED && !obstacle(entry);
}

/* Notes what somebody has chosen for an entry, also that none of its calls is a transaction. */
static void keep(const struct guardrail_chosen *chosen)
{
	struct note *note;

	if (chosen->every == every_at_first(chosen->entry) && chosen->argument < 0 && !chosen->comm[0])
		return;
	note = n_notes < MOST_NOTES ? kzalloc(sizeof(*note), GFP_KERNEL) : NULL;
	if (note)
		note->function = kstrdup(chosen->entry->function, GFP_KERNEL);
	if (!note || !note->function) {
		kfree(note);
		guardrail_limit_reached(GUARDRAIL_LIMIT_CHOICES);
		return;
	}
	strscpy(note->module, chosen->guarded->name, sizeof(note->module));
	note->every = chosen->every;
	note->argument = chosen->argument;
	note->value = chosen->value;
	strscpy(note->comm, chosen->comm, sizeof(note->comm));
	list_add_tail(&note->list, &notes);
	n_notes++;
}

/* Chooses again what was noted for an entry that calls do not find yet. */
static void choose_again(struct guardrail_chosen *chosen)
{
	const struct note *note;

	list_for_each_entry(note, &notes, list) {
		if (strcmp(note->module, chosen->guarded->name) || strcmp(note->function, chosen->entry->function) || obstacle(chosen->entry))
			continue;
		chosen->argument = note->argument;
		chosen->value = note->value;
		strscpy(chosen->comm, note->comm, sizeof(chosen->comm));
		set_every(chosen, note->every);
	}
}

/* Forgets the notes of a module, or all where NULL is asked for. */
static void forget_notes(const char *module)
{
	struct note *note, *next;

	list_for_each_entry_safe(note, next, &notes, list) {
		if (module && strcmp(note->module, module))
			continue;
		list_del(&note->list);
		n_notes--;
		kfree(note->function);
		kfree(note);
	}
}

/* Keeps what was chosen for a module, if a recovery or an administrator loads it again. */
static void keep_all(const struct guardrail_module *guarded)
{
	const struct guardrail_chosen *chosen;

	list_for_each_entry(chosen, &all, list)
		if (chosen->guarded == guarded && guardrail_is_dead(guarded->domain))
			keep(chosen);
}

static void remove_all(const struct guardrail_module *guarded)
{
	struct guardrail_chosen *chosen, *next;

	list_for_each_entry_safe(chosen, next, &all, list) {
		if (chosen->guarded != guarded)
			continue;
		set_every(chosen, 0);
		hlist_del_rcu(&chosen->node);
		list_del(&chosen->list);
		kfree_rcu(chosen, rcu);
	}
}

static int add(const struct guardrail_module *guarded, const struct guardrail_entry *entry)
{
	struct guardrail_chosen *chosen = kzalloc(sizeof(*chosen), GFP_KERNEL);

	if (!chosen)
		return -ENOMEM;
	chosen->entry = entry;
	chosen->guarded = guarded;
	chosen->argument = -1;
	set_every(chosen, every_at_first(entry));
	choose_again(chosen);
	list_add_tail(&chosen->list, &all);
	hlist_add_head_rcu(&chosen->node, &buckets[hash_ptr(entry, BITS)]);
	return 0;
}

int guardrail_transact_module(const struct guardrail_module *guarded, bool comes)
{
	int err = 0;
	u64 i;

	if (!guarded->n_transacts)
		return 0;
	if (comes) {
		err = guardrail_log_prepare();
		guardrail_aside_prepare();
	}
	mutex_lock(&choose_mutex);
	for (i = 0; comes && i < guarded->n_transacts && !err; i++)
		err = add(guarded, guarded->transacts[i]);
	if (!err)
		forget_notes(guarded->name);
	if (!comes)
		keep_all(guarded);
	if (!comes || err)
		remove_all(guarded);
	mutex_unlock(&choose_mutex);
	if (!comes)
		guardrail_device_forget(guarded->domain);
	return err;
}

void guardrail_choose_exit(void)
{
	mutex_lock(&choose_mutex);
	forget_notes(NULL);
	mutex_unlock(&choose_mutex);
}

bool guardrail_transacts_any(void)
{
	bool any;

	mutex_lock(&choose_mutex);
	any = !list_empty(&all);
	mutex_unlock(&choose_mutex);
	return any;
}

/**
 * struct choice - What a user asks for.
 * @module: Name of the module, or NULL for any.
 * @pattern: Pattern of the entries' names.
 * @every: As in struct guardrail_chosen.
 * @argument: As there.
 * @value: As there.
 * @comm: As there.
 */
struct choice {
	const char *module;
	const char *pattern;
	unsigned int every;
	int argument;
	unsigned long value;
	char comm[TASK_COMM_LEN];
};

static int parse_mode(const char *text, struct choice *choice)
{
	unsigned int every;

	if (!strcmp(text, "off"))
		choice->every = 0;
	else if (!strcmp(text, "always"))
		choice->every = 1;
	else if (str_has_prefix(text, "1/") && !kstrtouint(text + 2, 10, &every) && every)
		choice->every = every;
	else
		return -EINVAL;
	return 0;
}

static int parse_condition(char *text, struct choice *choice)
{
	if (str_has_prefix(text, "comm=") && text[5]) {
		strscpy(choice->comm, text + 5, sizeof(choice->comm));
		return 0;
	}
	if (!str_has_prefix(text, "arg") || text[3] < '1' || text[3] > '6' || text[4] != '=')
		return -EINVAL;
	choice->argument = text[3] - '1';
	return kstrtoul(text + 5, 0, &choice->value);
}

static int parse(char *text, struct choice *choice)
{
	char *words[4] = { NULL }, *word, *colon;
	unsigned int n = 0;
	int err;

	*choice = (struct choice){ .argument = -1 };
	text = strim(text);
	while ((word = strsep(&text, " \t"))) {
		if (!*word)
			continue;
		if (n == ARRAY_SIZE(words))
			return -EINVAL;
		words[n++] = word;
	}
	if (n != 2 && (n != 4 || strcmp(words[2], "if")))
		return -EINVAL;
	colon = strchr(words[0], ':');
	if (colon) {
		*colon = 0;
		choice->module = words[0];
	}
	choice->pattern = colon ? colon + 1 : words[0];
	err = parse_mode(words[1], choice);
	return err ?: n == 4 ? parse_condition(words[3], choice) : 0;
}

static bool is_meant(const struct guardrail_chosen *chosen, const struct choice *choice)
{
	return (!choice->module || !strcmp(choice->module, chosen->guarded->name)) && glob_match(choice->pattern, chosen->entry->function);
}

static void apply(struct guardrail_chosen *chosen, const struct choice *choice)
{
	/* Calls that read a part of the new choice and a part of the old one would fit neither. */
	WRITE_ONCE(chosen->every, chosen->every ? UINT_MAX : 0);
	synchronize_rcu();
	chosen->argument = choice->argument;
	chosen->value = choice->value;
	strscpy(chosen->comm, choice->comm, sizeof(chosen->comm));
	set_every(chosen, choice->every);
}

int guardrail_choose_set(char *text)
{
	bool is_pattern = strpbrk(text, "*?[");
	struct guardrail_chosen *chosen;
	struct choice choice;
	unsigned int n = 0;
	int err = parse(text, &choice);

	if (err) {
		pr_err("entries are chosen by '[MODULE:]PATTERN off|always|1/N [if argN=VALUE|if comm=NAME]'\n");
		return -EINVAL;
	}
	mutex_lock(&choose_mutex);
	list_for_each_entry(chosen, &all, list) {
		const char *why = obstacle(chosen->entry);

		if (!is_meant(chosen, &choice))
			continue;
		n++;
		if (!why) {
			apply(chosen, &choice);
		} else if (!is_pattern && choice.every) {
			pr_err("%s cannot be a transaction: %s\n", chosen->entry->function, why);
			err = -EPERM;
		}
	}
	mutex_unlock(&choose_mutex);
	if (!n)
		pr_err("no guarded module has an entry '%s' that could be a transaction\n", choice.pattern);
	return n ? err : -ENOENT;
}

static void show_mode(struct seq_file *seq, const struct guardrail_chosen *chosen)
{
	const char *why = obstacle(chosen->entry);

	if (why)
		seq_printf(seq, "never (%s)", why);
	else if (!chosen->every)
		seq_puts(seq, "off");
	else if (chosen->every == 1)
		seq_puts(seq, "always");
	else
		seq_printf(seq, "1/%u", chosen->every);
	if (chosen->argument >= 0)
		seq_printf(seq, " if arg%d=%#lx", chosen->argument + 1, chosen->value);
	if (chosen->comm[0])
		seq_printf(seq, " if comm=%s", chosen->comm);
}

void guardrail_choose_show(struct seq_file *seq)
{
	struct guardrail_chosen *chosen;

	mutex_lock(&choose_mutex);
	list_for_each_entry(chosen, &all, list) {
		seq_printf(seq, "%s:%s ", chosen->guarded->name, chosen->entry->function);
		show_mode(seq, chosen);
		seq_printf(seq, ": %ld begun, %ld committed, %ld rolled back, %ld not rolled back, %ld refused\n",
			   atomic_long_read(&chosen->begun), atomic_long_read(&chosen->committed), atomic_long_read(&chosen->rolled_back),
			   atomic_long_read(&chosen->fell_back), atomic_long_read(&chosen->refused));
	}
	mutex_unlock(&choose_mutex);
	guardrail_log_show(seq);
}
