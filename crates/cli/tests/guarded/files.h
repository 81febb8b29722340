/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A file system without files, which does what file systems do with objects of the kernel, and where WRONG is 1 one thing besides in
 * each function, which changes nothing.
 */
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/slab.h>

#ifndef WRONG
#error "WRONG is 0 or 1"
#endif

#define MAGIC 0x66696c65

struct files_inode {
	u32 state;
	struct inode inode;
};

static struct kmem_cache *cache;

/* An object that is not allocated yet, and what comes behind it. */
static noinline void files_construct(void *object)
{
	struct files_inode *files = object;
	u8 *end = (u8 *)(files + 1);

	WRITE_ONCE(files->state, 1);
	inode_init_once(&files->inode);
	if (WRONG)
		WRITE_ONCE(*end, READ_ONCE(*end));
}

static struct inode *files_alloc(struct super_block *sb)
{
	struct files_inode *files = alloc_inode_sb(sb, cache, GFP_KERNEL);

	return files ? &files->inode : NULL;
}

static void files_free(struct inode *inode)
{
	kmem_cache_free(cache, container_of(inode, struct files_inode, inode));
}

static const struct super_operations files_operations = {
	.alloc_inode = files_alloc,
	.free_inode = files_free,
	.statfs = simple_statfs,
};

/* Fields of an inode that file systems fill in, and one that is the kernel's, in the file system's own memory. */
static noinline void files_fill_inode(struct inode *inode)
{
	WRITE_ONCE(inode->i_size, 0);
	inode->i_ino = 1;
	inode->i_mode = S_IFDIR | 0500;
	inode->i_op = &simple_dir_inode_operations;
	inode->i_fop = &simple_dir_operations;
	WRITE_ONCE(container_of(inode, struct files_inode, inode)->state, 2);
	if (WRONG)
		WRITE_ONCE(inode->i_sb, READ_ONCE(inode->i_sb));
}

/* The same of the file system as a whole. */
static noinline void files_fill_super_block(struct super_block *sb)
{
	sb->s_magic = MAGIC;
	sb->s_op = &files_operations;
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	if (WRONG)
		WRITE_ONCE(sb->s_dev, READ_ONCE(sb->s_dev));
}

static int files_fill(struct super_block *sb, struct fs_context *context)
{
	struct inode *inode;

	files_fill_super_block(sb);
	inode = new_inode(sb);
	if (!inode)
		return -ENOMEM;
	files_fill_inode(inode);
	sb->s_root = d_make_root(inode);
	return sb->s_root ? 0 : -ENOMEM;
}

static int files_get_tree(struct fs_context *context)
{
	return get_tree_nodev(context, files_fill);
}

static const struct fs_context_operations files_context = { .get_tree = files_get_tree };

static int files_init_context(struct fs_context *context)
{
	context->ops = &files_context;
	return 0;
}

static struct file_system_type files_type = {
	.owner = THIS_MODULE,
	.name = "guardrail_files",
	.init_fs_context = files_init_context,
	.kill_sb = kill_anon_super,
};

static int __init files_init(void)
{
	struct vfsmount *mount;

	cache = kmem_cache_create("guardrail_files", sizeof(struct files_inode), 0, 0, files_construct);
	if (!cache)
		return -ENOMEM;
	mount = kern_mount(&files_type);
	if (IS_ERR(mount)) {
		kmem_cache_destroy(cache);
		return PTR_ERR(mount);
	}
	kern_unmount(mount);
	return 0;
}

static void __exit files_exit(void)
{
	/* Inodes are freed later. */
	rcu_barrier();
	kmem_cache_destroy(cache);
}

module_init(files_init);
module_exit(files_exit);
MODULE_DESCRIPTION("guardrail: what calls do to the rights of file systems");
MODULE_LICENSE("GPL");
