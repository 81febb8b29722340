// SPDX-License-Identifier: GPL-2.0-or-later
/* Mounts parked file systems anew, and takes part in the recovery of their domain; fs_recovery.h describes it. */
#include <linux/blkdev.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "classes/classes.h"
#include "classes/fs_recovery.h"
#include "recovery/class.h"
#include "recovery/restart.h"

/*
 * The most bytes from the begin of an entry's thunk to where guardrail_enter() returns; the next
 * thunk is farther away.
 */
#define THUNK 0xd0

static void release_device(struct guardrail_dead_fs *dead)
{
	if (!dead->device)
		return;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
	blkdev_put(dead->device, FMODE_READ);
#else
	bdev_fput(dead->device);
#endif
	dead->device = NULL;
}

/* Mounts the same device with the new driver. */
static struct vfsmount *mount_anew(const struct guardrail_dead_fs *dead)
{
	unsigned long flags = dead->sb->s_flags & (SB_RDONLY | SB_SYNCHRONOUS | SB_DIRSYNC | SB_LAZYTIME);
	struct file_system_type *type = get_fs_type(dead->type);
	char *options = kstrdup(dead->options ?: "", GFP_KERNEL);
	struct vfsmount *mount = ERR_PTR(-ENODEV);

	if (type && options)
		mount = vfs_kern_mount(type, flags, dead->source, options);
	kfree(options);
	if (type)
		module_put(type->owner);
	return mount;
}

/* Frees what was held for the recovery only. */
static void release(struct guardrail_dead_fs *dead)
{
	unsigned int i;

	release_device(dead);
	for (i = 0; i < dead->n_inodes; i++) {
		dput(dead->inodes[i].dentry);
		if (dead->inodes[i].held)
			iput(dead->inodes[i].inode);
	}
	dead->n_inodes = 0;
	kvfree(dead->inodes);
	dead->inodes = NULL;
}

static bool restore(struct guardrail_dead_fs *dead)
{
	struct vfsmount *mount = mount_anew(dead);
	int err;

	if (IS_ERR(mount)) {
		pr_err("%s cannot be mounted again (error %ld)\n", dead->source, PTR_ERR(mount));
		return false;
	}
	guardrail_copy_data(dead, mount);
	err = guardrail_hand_over(dead, mount);
	mntput(mount);
	if (err)
		return false;
	release(dead);
	shrink_dcache_sb(dead->sb);
	return true;
}

static struct guardrail_dead_fs *next_dead(u32 domain)
{
	struct guardrail_dead_fs *dead, *found = NULL;

	spin_lock_irq(&guardrail_dead_fs_lock);
	list_for_each_entry(dead, &guardrail_dead_fs_list, list)
		if (dead->domain == domain && !dead->restored)
			found = dead;
	spin_unlock_irq(&guardrail_dead_fs_lock);
	return found;
}

static unsigned int restore_fs(u32 domain)
{
	unsigned int failed = 0;
	struct guardrail_dead_fs *dead;

	while ((dead = next_dead(domain))) {
		failed += !restore(dead);
		dead->restored = true;
	}
	return failed;
}

/* Reads a pointer from a structure of functions; 0 where something cannot be read. */
#define FUNCTION(p, ops, member)                                                                         \
	({                                                                                               \
		typeof((p)->ops) functions;                                                              \
		unsigned long function = 0;                                                              \
		if (get_kernel_nofault(functions, &(p)->ops) ||                                          \
		    get_kernel_nofault(function, (unsigned long *)&functions->member))                   \
			function = 0;                                                                    \
		function;                                                                                \
	})

/* True where the entry is that of this function. */
static bool is_at(const struct guardrail_record *record, unsigned long function)
{
	return function && record->saved.ip - function < THUNK;
}

/* Does what the kernel relies on after a call that was refused or ended. */
static void settle(const struct guardrail_record *record, bool ended)
{
	struct super_block *sb;
	struct inode *inode = (struct inode *)record->call.args[0];
	struct address_space *mapping = (struct address_space *)record->call.args[1];
	struct folio *folio = (struct folio *)record->call.args[1];

	if (!in_task() || irqs_disabled() || preempt_count())
		return;
	if (!get_kernel_nofault(sb, &inode->i_sb) && sb && is_at(record, FUNCTION(sb, s_op, evict_inode))) {
		if (!(guardrail_inode_state(inode) & I_CLEAR))
			guardrail_dead_evict(inode);
		return;
	}
	if (ended)
		return;
	if (is_at(record, FUNCTION(mapping, a_ops, write_end))) {
		struct page *page = (struct page *)record->call.args[5];

		folio_unlock(page_folio(page));
		folio_put(page_folio(page));
		return;
	}
	if (!get_kernel_nofault(mapping, &folio->mapping) && is_at(record, FUNCTION(mapping, a_ops, read_folio)))
		folio_unlock(folio);
}

static void entry_over(struct guardrail_record *record, bool ended)
{
	u32 domain = record->entry->domain;

	if (!test_bit(domain, &guardrail_fs_domains))
		return;
	settle(record, ended);
	guardrail_restart(domain, ended);
}

static bool has_fs(u32 domain)
{
	return test_bit(domain, &guardrail_fs_domains);
}

static void forget_types(u32 domain)
{
	int i;

	for (i = 0; i < GUARDRAIL_FS_TYPES; i++)
		if (guardrail_fs_types[domain][i]) {
			unregister_filesystem(guardrail_fs_types[domain][i]);
			guardrail_fs_types[domain][i] = NULL;
		}
}

static int park(u32 domain, const struct guardrail_modules *modules, bool fails)
{
	int n = fails ? 0 : guardrail_park_fs(domain);

	return min(n, 1);
}

static struct guardrail_recovery_class fs_class = {
	.name = "file systems",
	.cannot_park = "a file system cannot stay without its driver",
	.not_restored = "a file system could not be mounted again",
	.outlives = has_fs,
	.entry_over = entry_over,
	.park = park,
	.restore = restore_fs,
	.forget_types = forget_types,
	.keeps = guardrail_keeps_allocation,
};

void __init guardrail_fs_register(void)
{
	guardrail_recovery_register(&fs_class);
}
