// SPDX-License-Identifier: GPL-2.0-or-later
/* The functions that the kernel calls of a file system without a driver; fs_recovery.h describes it. */
#include <linux/buffer_head.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/xattr.h>

#include "base/symbols.h"
#include "classes/fs_recovery.h"
#include "classes/slab.h"
#include "recovery/restart.h"

/* Refuses any call. All functions that it replaces return an int, a long, or a pointer that can be an error. */
static long refuse(void)
{
	guardrail_restart_dead();
	return -EIO;
}

static int yes(void)
{
	return 1;
}

static int dead_read_folio(struct file *file, struct folio *folio)
{
	folio_unlock(folio);
	return refuse();
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
static int dead_write_end(struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int copied, struct page *page,
			  void *data)
{
	struct folio *folio = page_folio(page);
#elif LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
static int dead_write_end(struct file *file, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int copied, struct folio *folio,
			  void *data)
{
#else
static int dead_write_end(const struct kiocb *iocb, struct address_space *mapping, loff_t pos, unsigned int len, unsigned int copied,
			  struct folio *folio, void *data)
{
#endif
	folio_unlock(folio);
	folio_put(folio);
	return refuse();
}

void guardrail_dead_evict(struct inode *inode)
{
	truncate_inode_pages_final(&inode->i_data);
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
	invalidate_inode_buffers(inode);
#endif
	clear_inode(inode);
}

static void dead_free_inode(struct inode *inode)
{
	unsigned long start = 0, size = 0, flags;
	struct guardrail_dead_fs *dead;
	u32 domain = 0;

	spin_lock_irqsave(&guardrail_dead_fs_lock, flags);
	list_for_each_entry(dead, &guardrail_dead_fs_list, list)
		if (dead->sb == inode->i_sb && dead->size) {
			start = (unsigned long)inode - dead->offset;
			size = dead->size;
			domain = dead->domain;
		}
	spin_unlock_irqrestore(&guardrail_dead_fs_lock, flags);
	/*
	 * Otherwise the begin of its memory, or how its cache needs it, is unknown, and it is lost. Since Linux 7.0,
	 * buffers may be in a list that the driver has beside the inode.
	 */
	if (LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0) && size && guardrail_construct(domain, start, size))
		kfree((void *)start);
}

static const struct super_operations dead_super_operations = {
	.evict_inode = guardrail_dead_evict,
	.free_inode = dead_free_inode,
	.drop_inode = (void *)yes,
	.write_inode = (void *)refuse,
	.sync_fs = (void *)refuse,
	.statfs = (void *)refuse,
};

static const struct inode_operations dead_inode_operations = {
	.lookup = (void *)refuse,
	.get_link = (void *)refuse,
	.create = (void *)refuse,
	.link = (void *)refuse,
	.unlink = (void *)refuse,
	.symlink = (void *)refuse,
	.mkdir = (void *)refuse,
	.rmdir = (void *)refuse,
	.mknod = (void *)refuse,
	.rename = (void *)refuse,
	.setattr = (void *)refuse,
	.getattr = (void *)refuse,
	.listxattr = (void *)refuse,
	.fiemap = (void *)refuse,
	.update_time = (void *)refuse,
	.tmpfile = (void *)refuse,
	.fileattr_get = (void *)refuse,
	.fileattr_set = (void *)refuse,
};

static const struct address_space_operations dead_space_operations = {
	.read_folio = dead_read_folio,
	.writepages = (void *)refuse,
	.write_begin = (void *)refuse,
	.write_end = dead_write_end,
	.direct_IO = (void *)refuse,
	.dirty_folio = block_dirty_folio,
	.invalidate_folio = block_invalidate_folio,
};

static const struct dentry_operations dead_dentry_operations = {
	.d_revalidate = (void *)refuse,
	.d_weak_revalidate = (void *)refuse,
	.d_hash = (void *)refuse,
	.d_compare = (void *)yes,
	.d_delete = (void *)yes,
};

const struct file_operations guardrail_dead_file_operations = {
	.owner = THIS_MODULE,
	.open = (void *)refuse,
	.llseek = (void *)refuse,
	.read_iter = (void *)refuse,
	.write_iter = (void *)refuse,
	.iterate_shared = (void *)refuse,
	.unlocked_ioctl = (void *)refuse,
	.compat_ioctl = (void *)refuse,
	.mmap = (void *)refuse,
	.fsync = (void *)refuse,
	.splice_read = (void *)refuse,
	.splice_write = (void *)refuse,
	.fallocate = (void *)refuse,
};

static const struct xattr_handler *const no_xattrs[] = { NULL };
static struct file_system_type dead_type = { .owner = THIS_MODULE, .name = "dead", .kill_sb = generic_shutdown_super };

void guardrail_dead_inode(struct inode *inode)
{
	struct dentry *dentry;

	spin_lock(&inode->i_lock);
	WRITE_ONCE(inode->i_op, &dead_inode_operations);
	if (S_ISREG(inode->i_mode) || S_ISDIR(inode->i_mode))
		WRITE_ONCE(inode->i_fop, &guardrail_dead_file_operations);
	WRITE_ONCE(inode->i_data.a_ops, &dead_space_operations);
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0)
	hlist_for_each_entry(dentry, &inode->i_dentry, d_u.d_alias)
#else
	hlist_for_each_entry(dentry, &inode->i_dentry, d_alias)
#endif
		WRITE_ONCE(dentry->d_op, &dead_dentry_operations);
	spin_unlock(&inode->i_lock);
}

void guardrail_dead_super(struct super_block *sb)
{
	WRITE_ONCE(sb->s_op, &dead_super_operations);
	WRITE_ONCE(sb->s_export_op, NULL);
	WRITE_ONCE(sb->s_xattr, (void *)no_xattrs);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
	WRITE_ONCE(sb->s_d_op, &dead_dentry_operations);
#else
	WRITE_ONCE(sb->__s_d_op, &dead_dentry_operations);
#endif
}

/* The kernel finds a superblock by its type, which is in the driver. */
bool guardrail_dead_super_type(struct super_block *sb)
{
	spinlock_t *sb_lock = (spinlock_t *)guardrail_find_symbol("sb_lock");

	if (!sb_lock)
		return false;
	__module_get(THIS_MODULE);
	spin_lock(sb_lock);
	hlist_del_init(&sb->s_instances);
	hlist_add_head(&sb->s_instances, &dead_type.fs_supers);
	sb->s_type = &dead_type;
	spin_unlock(sb_lock);
	return true;
}
