// SPDX-License-Identifier: GPL-2.0-or-later
/* Mounts of a file system whose driver died move to the one mounted in its place; fs_recovery.h describes it. */
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/rcupdate.h>
#include <linux/seqlock.h>
#include <linux/version.h>

#include "base/symbols.h"
#include "classes/fs_found.h"
#include "classes/fs_recovery.h"

/* How far from the list of a superblock's mounts the rest of a mount is, in words. */
#define MOUNT_WORDS 64

/* Finds the public part of a mount from its link in the list of a superblock, by the values that it must have. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
static struct vfsmount *mount_of(struct list_head *link, struct super_block *sb)
{
	unsigned long *word = (unsigned long *)link;
	int i;

	for (i = 1; i < MOUNT_WORDS; i++) {
		struct vfsmount *mount = (struct vfsmount *)(word - i);

		if (mount->mnt_sb == sb && virt_addr_valid(mount->mnt_root) && mount->mnt_root->d_sb == sb)
			return mount;
	}
	return NULL;
}

static void find_mounts(struct guardrail_found *found, struct super_block *sb)
{
	struct list_head *link;

	list_for_each(link, &sb->s_mounts) {
		struct vfsmount *mount = mount_of(link, sb);

		if (mount && guardrail_found_note(found, mount))
			mntget(mount);
	}
}

static void move_mount(struct vfsmount *mount, struct super_block *from, struct super_block *to)
{
	struct list_head *link, *next;

	list_for_each_safe(link, next, &from->s_mounts)
		if (mount_of(link, from) == mount)
			list_move_tail(link, &to->s_mounts);
}
#else
/**
 * struct link - Two words of a mount, which lead through the mounts of a superblock.
 * @next: The next mount.
 * @back: The pointer that leads to this mount; its last bit has another meaning.
 */
struct link {
	struct mount *next;
	unsigned long back;
};

static struct link *link_of(struct mount *mount, const void *back)
{
	unsigned long *word = (unsigned long *)mount;
	int i;

	for (i = 1; i < MOUNT_WORDS; i++)
		if ((word[i] & ~1UL) == (unsigned long)back)
			return (struct link *)(word + i - 1);
	return NULL;
}

static struct vfsmount *mount_of(struct mount *mount, const struct super_block *sb)
{
	unsigned long *word = (unsigned long *)mount;
	int i;

	for (i = 0; i < MOUNT_WORDS; i++) {
		struct vfsmount *found = (struct vfsmount *)(word + i);

		if (found->mnt_sb == sb && virt_addr_valid(found->mnt_root) && found->mnt_root->d_sb == sb)
			return found;
	}
	return NULL;
}

static void find_mounts(struct guardrail_found *found, struct super_block *sb)
{
	struct mount *one = sb->s_mounts;
	struct link *link = one ? link_of(one, &sb->s_mounts) : NULL;

	for (; one && link; one = link->next, link = one ? link_of(one, &link->next) : NULL) {
		struct vfsmount *mount = mount_of(one, sb);

		if (mount && guardrail_found_note(found, mount))
			mntget(mount);
	}
}

static void move_mount(struct vfsmount *mount, struct super_block *from, struct super_block *to)
{
	struct mount **at = &from->s_mounts;
	struct link *link, *next;

	for (; *at; at = &link->next) {
		struct mount *one = *at;

		link = link_of(one, at);
		if (!link)
			return;
		if (mount_of(one, from) != mount)
			continue;
		if (link->next) {
			next = link_of(link->next, &link->next);
			if (!next)
				return;
			next->back = (unsigned long)at | (next->back & 1);
		}
		*at = link->next;
		if (to->s_mounts) {
			next = link_of(to->s_mounts, &to->s_mounts);
			if (next)
				next->back = (unsigned long)&link->next | (next->back & 1);
		}
		link->next = to->s_mounts;
		link->back = (unsigned long)&to->s_mounts | (link->back & 1);
		to->s_mounts = one;
		return;
	}
}
#endif

int guardrail_move_mounts(struct guardrail_dead_fs *dead, struct vfsmount *root, unsigned int *n)
{
	seqlock_t *mount_lock = (seqlock_t *)guardrail_find_symbol("mount_lock");
	struct super_block *sb = root->mnt_sb;
	struct guardrail_found found;
	unsigned int i;

	if (!mount_lock || !guardrail_found_begin(&found, dead->sb, GUARDRAIL_MOST_MOUNTS))
		return -ENOMEM;
	write_seqlock(mount_lock);
	find_mounts(&found, dead->sb);
	write_sequnlock(mount_lock);
	for (i = 0; i < found.n; i++) {
		struct vfsmount *mount = found.p[i];
		struct dentry *old = mount->mnt_root;
		struct path path;

		if (guardrail_find_same(old, root, &path)) {
			dead->lost++;
		} else {
			write_seqlock(mount_lock);
			move_mount(mount, dead->sb, sb);
			atomic_inc(&sb->s_active);
			mount->mnt_root = dget(path.dentry);
			mount->mnt_sb = sb;
			write_sequnlock(mount_lock);
			++*n;
			path_put(&path);
			synchronize_rcu();
			dput(old);
			deactivate_super(dead->sb);
		}
		mntput(mount);
	}
	kvfree(found.p);
	return 0;
}
