// SPDX-License-Identifier: GPL-2.0-or-later
/* Notes on how file systems were mounted, and on their types; fs_recovery.h describes them. */
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/slab.h>

#include "base/limits.h"
#include "border/custom.h"
#include "classes/fs_recovery.h"
#include "rights/memory.h"

/* The longest options of a mount, in bytes. */
#define OPTIONS PAGE_SIZE
#define MOST_NOTES 256

LIST_HEAD(guardrail_fs_notes);
/* The number of notes, under guardrail_fs_notes_lock. */
static unsigned int n_notes;
DEFINE_MUTEX(guardrail_fs_notes_lock);
struct file_system_type *guardrail_fs_types[GUARDRAIL_DOMAINS][GUARDRAIL_FS_TYPES];
unsigned long guardrail_fs_domains;

static struct guardrail_fs_note *find_note(u32 domain, const void *key)
{
	struct guardrail_fs_note *note;

	lockdep_assert_held(&guardrail_fs_notes_lock);
	list_for_each_entry(note, &guardrail_fs_notes, list)
		if (note->domain == domain && note->key == key)
			return note;
	return NULL;
}

static struct guardrail_fs_note *new_note(u32 domain, const void *key)
{
	struct guardrail_fs_note *note = n_notes < MOST_NOTES ? kzalloc(sizeof(*note), GFP_KERNEL) : NULL;

	if (!note)
		return NULL;
	note->domain = domain;
	note->key = key;
	list_add(&note->list, &guardrail_fs_notes);
	n_notes++;
	return note;
}

void guardrail_fs_note_free(struct guardrail_fs_note *note)
{
	if (!note)
		return;
	list_del(&note->list);
	n_notes--;
	kfree(note->source);
	kfree(note->options);
	kfree(note);
}

/* A mount that was noted has succeeded. */
static void mounted(struct guardrail_fs_note *note, struct super_block *sb, const char *type)
{
	struct guardrail_fs_note *other, *next;

	/* Notes of an older file system at this address are stale. */
	list_for_each_entry_safe(other, next, &guardrail_fs_notes, list)
		if (other != note && other->sb == sb)
			guardrail_fs_note_free(other);
	note->key = NULL;
	note->sb = sb;
	note->type = type;
}

/* mount_bdev(fs_type, flags, dev_name, data, …) is about to be called. */
GUARDRAIL_CUSTOM(fs_mounts)
{
	const char *source = (const char *)call->args[2], *options = (const char *)call->args[3];
	struct guardrail_fs_note *note;

	mutex_lock(&guardrail_fs_notes_lock);
	guardrail_fs_note_free(find_note(action->domain, current));
	note = new_note(action->domain, current);
	if (note) {
		note->source = source ? kstrndup(source, PATH_MAX, GFP_KERNEL) : NULL;
		note->options = options ? kstrndup(options, OPTIONS, GFP_KERNEL) : NULL;
	}
	mutex_unlock(&guardrail_fs_notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_mounted)
{
	struct dentry *root = (struct dentry *)call->result;
	struct guardrail_fs_note *note;

	mutex_lock(&guardrail_fs_notes_lock);
	note = find_note(action->domain, current);
	if (note && !IS_ERR_OR_NULL(root))
		mounted(note, root->d_sb, root->d_sb->s_type->name);
	else
		guardrail_fs_note_free(note);
	mutex_unlock(&guardrail_fs_notes_lock);
	return 0;
}

/* parse_param(fc, param): an option is set. The driver may keep the value, and then takes it from the parameter. */
GUARDRAIL_CUSTOM(fs_option)
{
	struct fs_context *fc = (struct fs_context *)call->args[0];
	struct fs_parameter *param = (struct fs_parameter *)call->args[1];
	const char *value = "";
	struct guardrail_fs_note *note;
	char *options;

	if (!fc || !param || !param->key || !strcmp(param->key, "source"))
		return 0;
	if (param->type == fs_value_is_string && param->string) {
		value = param->string;
		guardrail_give(action->domain, (unsigned long)value, strlen(value) + 1, GUARDRAIL_KIND_SLAB);
	}
	mutex_lock(&guardrail_fs_notes_lock);
	note = find_note(action->domain, fc) ?: new_note(action->domain, fc);
	if (note) {
		options = kasprintf(GFP_KERNEL, "%s%s%s%s%s", note->options ?: "", note->options ? "," : "", param->key, *value ? "=" : "", value);
		if (options && strlen(options) <= OPTIONS) {
			kfree(note->options);
			note->options = options;
		} else {
			kfree(options);
		}
	}
	mutex_unlock(&guardrail_fs_notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_option_end)
{
	struct fs_parameter *param = (struct fs_parameter *)call->args[1];

	if (param && param->key && strcmp(param->key, "source") && param->type == fs_value_is_string && param->string)
		guardrail_take(action->domain, (unsigned long)param->string, GUARDRAIL_KIND_SLAB);
	return 0;
}

/* get_tree_bdev(fc, …) has returned. */
GUARDRAIL_CUSTOM(fs_tree)
{
	struct fs_context *fc = (struct fs_context *)call->args[0];
	struct guardrail_fs_note *note;

	if ((int)call->result || !fc->root)
		return 0;
	mutex_lock(&guardrail_fs_notes_lock);
	note = find_note(action->domain, fc) ?: new_note(action->domain, fc);
	if (note) {
		kfree(note->source);
		note->source = fc->source ? kstrndup(fc->source, PATH_MAX, GFP_KERNEL) : NULL;
		mounted(note, fc->root->d_sb, fc->fs_type->name);
	}
	mutex_unlock(&guardrail_fs_notes_lock);
	return 0;
}

/* The context is freed. Options that it changed of a mounted file system are added to its note. */
GUARDRAIL_CUSTOM(fs_context_gone)
{
	struct fs_context *fc = (struct fs_context *)call->args[0];
	struct guardrail_fs_note *note, *of = NULL, *one;

	mutex_lock(&guardrail_fs_notes_lock);
	note = find_note(action->domain, fc);
	if (note && fc->purpose == FS_CONTEXT_FOR_RECONFIGURE && fc->root && note->options)
		list_for_each_entry(one, &guardrail_fs_notes, list)
			if (one->sb == fc->root->d_sb)
				of = one;
	if (of) {
		char *options = kasprintf(GFP_KERNEL, "%s%s%s", of->options ?: "", of->options ? "," : "", note->options);

		if (options && strlen(options) <= OPTIONS)
			swap(of->options, options);
		kfree(options);
	}
	guardrail_fs_note_free(note);
	mutex_unlock(&guardrail_fs_notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_gone)
{
	struct super_block *sb = (struct super_block *)object_of(action, call);
	struct guardrail_fs_note *note, *next;

	mutex_lock(&guardrail_fs_notes_lock);
	list_for_each_entry_safe(note, next, &guardrail_fs_notes, list)
		if (sb && note->sb == sb)
			guardrail_fs_note_free(note);
	mutex_unlock(&guardrail_fs_notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_type)
{
	struct file_system_type *type = (struct file_system_type *)object_of(action, call);
	int i;

	if (type)
		set_bit(action->domain, &guardrail_fs_domains);
	for (i = 0; type && i < GUARDRAIL_FS_TYPES; i++)
		if (!guardrail_fs_types[action->domain][i]) {
			guardrail_fs_types[action->domain][i] = type;
			break;
		}
	if (type && i == GUARDRAIL_FS_TYPES)
		guardrail_limit_reached(GUARDRAIL_LIMIT_FS_TYPES);
	return 0;
}

GUARDRAIL_CUSTOM(fs_type_gone)
{
	unsigned long type = object_of(action, call);
	int i;

	for (i = 0; type && i < GUARDRAIL_FS_TYPES; i++)
		if (guardrail_fs_types[action->domain][i] == (void *)type)
			guardrail_fs_types[action->domain][i] = NULL;
	return 0;
}
