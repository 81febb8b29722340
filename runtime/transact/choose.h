/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which entries are transactions. A user chooses them at run time. */
#ifndef GUARDRAIL_TRANSACT_CHOOSE_H
#define GUARDRAIL_TRANSACT_CHOOSE_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/sched.h>

#include "base/kernel.h"

/**
 * struct guardrail_chosen - An entry that can be a transaction.
 * @node: Place in its bucket.
 * @list: Place among all.
 * @rcu: Frees it after a grace period.
 * @entry: The entry.
 * @guarded: Its module.
 * @every: 0 where none of its calls is a transaction; else one of so many is.
 * @argument: Which argument must have a value, from 0; negative for none.
 * @value: The value.
 * @comm: Name of the task that must call; empty for any.
 * @turn: Counts calls that fit.
 * @begun: How many transactions there were.
 * @committed: How many of them ended well.
 * @rolled_back: How many of them were undone.
 * @fell_back: How many of them could not be undone.
 * @refused: How many calls were none for lack of memory.
 */
struct guardrail_chosen {
	struct hlist_node node;
	struct list_head list;
	struct rcu_head rcu;
	const struct guardrail_entry *entry;
	const struct guardrail_module *guarded;
	unsigned int every;
	int argument;
	unsigned long value;
	char comm[TASK_COMM_LEN];
	atomic_t turn;
	atomic_long_t begun, committed, rolled_back, fell_back, refused;
};

/**
 * guardrail_choose() - Decide whether a call of an entry is a transaction.
 * @record: The call.
 *
 * Context: Any but NMI.
 * Return: What is counted of the entry; NULL where it is no transaction.
 */
struct guardrail_chosen *guardrail_choose(const struct guardrail_record *record);

/**
 * guardrail_choose_set() - Choose entries, as a user asks for it.
 * @text: "[MODULE:]PATTERN off|always|1/N [if argN=VALUE|if comm=NAME]"; it is changed.
 *
 * Context: Process.
 * Return: 0; -EINVAL for a text that makes no sense, -ENOENT where no entry fits, -EPERM where one that fits cannot be a
 * transaction, -ENOMEM without memory. The log says why.
 */
int guardrail_choose_set(char *text);

/**
 * guardrail_choose_show() - Print all entries that can be transactions, with what was counted.
 * @seq: Where to print.
 */
void guardrail_choose_show(struct seq_file *seq);

/**
 * guardrail_transact_module() - Note the entries of a module, or forget them.
 * @guarded: The module.
 * @comes: It is loaded; false where it is unloaded.
 *
 * Where it is unloaded from a dead domain, what was chosen is kept until a module of its name is loaded.
 *
 * Context: Process.
 * Return: 0, or -ENOMEM.
 */
int guardrail_transact_module(const struct guardrail_module *guarded, bool comes);

/**
 * guardrail_choose_exit() - Forget choices whose modules were not loaded again.
 *
 * Context: Process. No guarded module is loaded.
 */
void guardrail_choose_exit(void);

/**
 * guardrail_transacts_any() - Test for modules whose entries can be transactions.
 *
 * Context: Process.
 * Return: True where one is loaded.
 */
bool guardrail_transacts_any(void);

#endif /* GUARDRAIL_TRANSACT_CHOOSE_H */
