/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Sets of pointers that are found during a walk: files, processes, folders, mounts. */
#ifndef GUARDRAIL_CLASSES_FS_FOUND_H
#define GUARDRAIL_CLASSES_FS_FOUND_H

#include <linux/fs.h>
#include <linux/slab.h>

/* The most mounts of a file system that are looked for. */
#define GUARDRAIL_MOST_MOUNTS 1024

/**
 * struct guardrail_found - What was found of a superblock.
 * @sb: The superblock.
 * @p: The pointers; kvfree() frees the array.
 * @n: How many there are.
 * @most: Room for so many.
 * @more: There was no room for all.
 */
struct guardrail_found {
	const struct super_block *sb;
	void **p;
	unsigned int n, most;
	bool more;
};

/**
 * guardrail_found_begin() - Begin with an empty set.
 * @found: The set.
 * @sb: What is to be found is of this superblock.
 * @most: Room for so many.
 *
 * Context: Process.
 * Return: False without memory.
 */
static inline bool guardrail_found_begin(struct guardrail_found *found, const struct super_block *sb, unsigned int most)
{
	*found = (struct guardrail_found){ .sb = sb, .most = most, .p = kvmalloc_array(most, sizeof(void *), GFP_KERNEL) };
	return found->p;
}

/**
 * guardrail_found_note() - Add a pointer.
 * @found: The set.
 * @p: The pointer.
 *
 * Return: True where it is new, and there was room.
 */
static inline bool guardrail_found_note(struct guardrail_found *found, void *p)
{
	unsigned int i;

	for (i = 0; i < found->n; i++)
		if (found->p[i] == p)
			return false;
	if (found->n == found->most) {
		found->more = true;
		return false;
	}
	found->p[found->n++] = p;
	return true;
}

#endif /* GUARDRAIL_CLASSES_FS_FOUND_H */
