// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A file of debugfs prints a name that fills its memory and has no zero byte behind it; the kernel
 * looks for one.
 *
 * Twin: a file of debugfs prints a name that fills its memory, and says how long it is.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include "zoo.h"

/* The slot has 32 bytes. */
#define LENGTH 24

static char *name;
static struct dentry *node;

static noinline int kernel_debugfs_show(struct seq_file *m, void *unused)
{
#ifdef TWIN
	seq_printf(m, "%.*s", LENGTH, name);
#else
	seq_printf(m, "%.32s", name); /* BUG: out-of-bounds */
#endif
	seq_putc(m, '\n');
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(kernel_debugfs);

static int __init kernel_debugfs_init(void)
{
	name = kmalloc(LENGTH, GFP_KERNEL);
	if (!name)
		return -ENOMEM;
	memset(name, 'n', LENGTH);
	node = debugfs_create_file("zoo", 0444, NULL, NULL, &kernel_debugfs_fops);
	return 0;
}

static void __exit kernel_debugfs_exit(void)
{
	debugfs_remove(node);
	kfree(name);
}

module_init(kernel_debugfs_init);
module_exit(kernel_debugfs_exit);
MODULE_DESCRIPTION("zoo: a file of debugfs prints a name that does not end");
