// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A filesystem frees the options of a mount when it is mounted; a read of its one file looks at
 * them later.
 *
 * Twin: a filesystem frees the options of a mount when it is unmounted; a read of its one file
 * looks at them.
 */
#include <linux/fs_context.h>
#include "zoo.h"

struct mount_options {
	unsigned int version;
	char label[60];
};

static struct kmem_cache *options_cache;

/* A cache with a constructor is shared with nobody: what was freed stays as it was. */
static void kernel_fs_construct(void *options)
{
	memset(options, 0, sizeof(struct mount_options));
}

static noinline unsigned int kernel_fs_version(const struct mount_options *options)
{
	return READ_ONCE(options->version); /* BUG: use-after-free */
}

static ssize_t kernel_fs_read(struct file *file, char __user *buf, size_t count, loff_t *pos)
{
	char text[16];
	int length;

	length = scnprintf(text, sizeof(text), "%u\n", kernel_fs_version(file_inode(file)->i_sb->s_fs_info));
	return simple_read_from_buffer(buf, count, pos, text, length);
}

static const struct file_operations kernel_fs_file = {
	.owner = THIS_MODULE,
	.read = kernel_fs_read,
};

static int kernel_fs_fill(struct super_block *sb, struct fs_context *fc)
{
	/* Inode numbers 0 and 1 are taken. */
	static const struct tree_descr files[] = {
		{ NULL }, { NULL }, { "version", &kernel_fs_file, 0444 }, { "" }
	};
	struct mount_options *options;
	int err;

	options = kmem_cache_alloc(options_cache, GFP_KERNEL);
	if (!options)
		return -ENOMEM;
	options->version = 1;
	sb->s_fs_info = options;
	err = simple_fill_super(sb, 0x7a6f6f, files);
#ifndef TWIN
	kmem_cache_free(options_cache, options);
#endif
	return err;
}

static int kernel_fs_get_tree(struct fs_context *fc)
{
	return get_tree_nodev(fc, kernel_fs_fill);
}

static const struct fs_context_operations kernel_fs_context = {
	.get_tree = kernel_fs_get_tree,
};

static int kernel_fs_init_context(struct fs_context *fc)
{
	fc->ops = &kernel_fs_context;
	return 0;
}

static void kernel_fs_kill(struct super_block *sb)
{
#ifdef TWIN
	struct mount_options *options = sb->s_fs_info;

#endif
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
	kill_litter_super(sb);
#else
	kill_anon_super(sb);
#endif
#ifdef TWIN
	if (options)
		kmem_cache_free(options_cache, options);
#endif
}

static struct file_system_type kernel_fs_type = {
	.owner = THIS_MODULE,
	.name = "zoofs",
	.init_fs_context = kernel_fs_init_context,
	.kill_sb = kernel_fs_kill,
};

static int __init kernel_fs_init(void)
{
	int err;

	options_cache = kmem_cache_create("zoofs", sizeof(struct mount_options), 0, 0, kernel_fs_construct);
	if (!options_cache)
		return -ENOMEM;
	err = register_filesystem(&kernel_fs_type);
	if (err)
		kmem_cache_destroy(options_cache);
	return err;
}

static void __exit kernel_fs_exit(void)
{
	unregister_filesystem(&kernel_fs_type);
	kmem_cache_destroy(options_cache);
}

module_init(kernel_fs_init);
module_exit(kernel_fs_exit);
MODULE_DESCRIPTION("zoo: a filesystem whose file reads freed mount options");
