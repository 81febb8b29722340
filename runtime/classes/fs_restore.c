// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * File systems whose driver is killed stay mounted. What a mount was made of is noted while the driver is alive. When it dies, its superblocks and all
 * that belongs to them get functions of this module's, which refuse; when it has come again the same device is mounted
 * anew, and what has referred to the old file system refers to the new one (restore_files.c).
 */
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pagemap.h>
#include <linux/percpu-rwsem.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/version.h>
#include <linux/xattr.h>

#include "border/custom.h"
#include "recovery/recover.h"

/* No mount has more options than that, and no domain more types of file systems. */
#define OPTIONS PAGE_SIZE
#define TYPES 4
#define MOST_NOTES 256
/* Whoever has read a pointer to functions has used it after that time; how long is waited for who writes. */
#define GRACE_MS 20
#define WRITERS_MS 2000
/* From the begin of an entry's thunk to where guardrail_enter() returns, at most; the next thunk is farther away. */
#define THUNK 0xd0

/* How something was mounted. */
struct note {
	struct list_head list;
	u32 domain;
	const void *key;		/* while it is being mounted: the context or task */
	struct super_block *sb;		/* when it is mounted */
	const char *type;
	char *source, *options;
};

static LIST_HEAD(notes);
static unsigned int n_notes;
static DEFINE_MUTEX(notes_lock);
static struct file_system_type *types[GUARDRAIL_DOMAINS][TYPES];
/* Domains that have had a type of file systems. */
static unsigned long fs_domains;

static LIST_HEAD(dead_list);
static DEFINE_SPINLOCK(dead_lock);

static struct note *find_note(u32 domain, const void *key)
{
	struct note *note;

	list_for_each_entry(note, &notes, list)
		if (note->domain == domain && note->key == key)
			return note;
	return NULL;
}

static struct note *new_note(u32 domain, const void *key)
{
	struct note *note = n_notes < MOST_NOTES ? kzalloc(sizeof(*note), GFP_KERNEL) : NULL;

	if (!note)
		return NULL;
	note->domain = domain;
	note->key = key;
	list_add(&note->list, &notes);
	n_notes++;
	return note;
}

static void free_note(struct note *note)
{
	if (!note)
		return;
	list_del(&note->list);
	n_notes--;
	kfree(note->source);
	kfree(note->options);
	kfree(note);
}

/* Something is mounted, as it was noted. */
static void mounted(struct note *note, struct super_block *sb, const char *type)
{
	struct note *other, *next;

	/* Whatever was there before is no more. */
	list_for_each_entry_safe(other, next, &notes, list)
		if (other != note && other->sb == sb)
			free_note(other);
	note->key = NULL;
	note->sb = sb;
	note->type = type;
}

/* mount_bdev(fs_type, flags, dev_name, data, …) is about to be called. */
GUARDRAIL_CUSTOM(fs_mounts)
{
	const char *source = (const char *)frame->args[2], *options = (const char *)frame->args[3];
	struct note *note;

	mutex_lock(&notes_lock);
	free_note(find_note(action->domain, current));
	note = new_note(action->domain, current);
	if (note) {
		note->source = source ? kstrndup(source, PATH_MAX, GFP_KERNEL) : NULL;
		note->options = options ? kstrndup(options, OPTIONS, GFP_KERNEL) : NULL;
	}
	mutex_unlock(&notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_mounted)
{
	struct dentry *root = (struct dentry *)frame->result;
	struct note *note;

	mutex_lock(&notes_lock);
	note = find_note(action->domain, current);
	if (note && !IS_ERR_OR_NULL(root))
		mounted(note, root->d_sb, root->d_sb->s_type->name);
	else
		free_note(note);
	mutex_unlock(&notes_lock);
	return 0;
}

/* parse_param(fc, param): an option that is set. The driver may keep the value, and has to say so by taking it from the parameter. */
GUARDRAIL_CUSTOM(fs_option)
{
	struct fs_context *fc = (struct fs_context *)frame->args[0];
	struct fs_parameter *param = (struct fs_parameter *)frame->args[1];
	const char *value = "";
	struct note *note;
	char *options;

	if (!fc || !param || !param->key || !strcmp(param->key, "source"))
		return 0;
	if (param->type == fs_value_is_string && param->string) {
		value = param->string;
		guardrail_give(action->domain, (unsigned long)value, strlen(value) + 1, KIND_SLAB);
	}
	mutex_lock(&notes_lock);
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
	mutex_unlock(&notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_option_end)
{
	struct fs_parameter *param = (struct fs_parameter *)frame->args[1];

	if (param && param->key && strcmp(param->key, "source") && param->type == fs_value_is_string && param->string)
		guardrail_take(action->domain, (unsigned long)param->string, KIND_SLAB);
	return 0;
}

/* get_tree_bdev(fc, …) has returned. */
GUARDRAIL_CUSTOM(fs_tree)
{
	struct fs_context *fc = (struct fs_context *)frame->args[0];
	struct note *note;

	if ((int)frame->result || !fc->root)
		return 0;
	mutex_lock(&notes_lock);
	note = find_note(action->domain, fc) ?: new_note(action->domain, fc);
	if (note) {
		kfree(note->source);
		note->source = fc->source ? kstrndup(fc->source, PATH_MAX, GFP_KERNEL) : NULL;
		mounted(note, fc->root->d_sb, fc->fs_type->name);
	}
	mutex_unlock(&notes_lock);
	return 0;
}

/* The context goes: what it has changed of what is mounted is added to that. */
GUARDRAIL_CUSTOM(fs_context_gone)
{
	struct fs_context *fc = (struct fs_context *)frame->args[0];
	struct note *note, *of = NULL, *one;

	mutex_lock(&notes_lock);
	note = find_note(action->domain, fc);
	if (note && fc->purpose == FS_CONTEXT_FOR_RECONFIGURE && fc->root && note->options)
		list_for_each_entry(one, &notes, list)
			if (one->sb == fc->root->d_sb)
				of = one;
	if (of) {
		char *options = kasprintf(GFP_KERNEL, "%s%s%s", of->options ?: "", of->options ? "," : "", note->options);

		if (options && strlen(options) <= OPTIONS)
			swap(of->options, options);
		kfree(options);
	}
	free_note(note);
	mutex_unlock(&notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_gone)
{
	struct super_block *sb = (struct super_block *)object_of(action, frame);
	struct note *note, *next;

	mutex_lock(&notes_lock);
	list_for_each_entry_safe(note, next, &notes, list)
		if (sb && note->sb == sb)
			free_note(note);
	mutex_unlock(&notes_lock);
	return 0;
}

GUARDRAIL_CUSTOM(fs_type)
{
	struct file_system_type *type = (struct file_system_type *)object_of(action, frame);
	int i;

	if (type)
		set_bit(action->domain, &fs_domains);
	for (i = 0; type && i < TYPES; i++)
		if (!types[action->domain][i]) {
			types[action->domain][i] = type;
			break;
		}
	return 0;
}

GUARDRAIL_CUSTOM(fs_type_gone)
{
	unsigned long type = object_of(action, frame);
	int i;

	for (i = 0; type && i < TYPES; i++)
		if (types[action->domain][i] == (void *)type)
			types[action->domain][i] = NULL;
	return 0;
}

void guardrail_forget_fs_types(u32 domain)
{
	int i;

	for (i = 0; i < TYPES; i++)
		if (types[domain][i]) {
			unregister_filesystem(types[domain][i]);
			types[domain][i] = NULL;
		}
}

/* What the kernel calls of a file system without a driver. All of these return an int, a long, or a pointer that can be an error. */
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

static void dead_evict_inode(struct inode *inode)
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
	struct dead_fs *dead;
	u32 domain = 0;

	spin_lock_irqsave(&dead_lock, flags);
	list_for_each_entry(dead, &dead_list, list)
		if (dead->sb == inode->i_sb && dead->size) {
			start = (unsigned long)inode - dead->offset;
			size = dead->size;
			domain = dead->domain;
		}
	spin_unlock_irqrestore(&dead_lock, flags);
	/*
	 * Otherwise nobody knows where its memory begins, or how it is to look for the next inode, and it is lost. Since Linux 7.0 buffers may be in a list
	 * that the driver has beside the inode.
	 */
	if (LINUX_VERSION_CODE < KERNEL_VERSION(7, 0, 0) && size && guardrail_construct(domain, start, size))
		kfree((void *)start);
}

static const struct super_operations dead_super_operations = {
	.evict_inode = dead_evict_inode,
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

/* The inode and its names have functions of this module's. */
static void park_inode(struct inode *inode)
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

/* All inodes that are there; each is held, with a name. */
static bool park_inodes(struct dead_fs *dead)
{
	struct super_block *sb = dead->sb;
	unsigned int n = 0, room = 64, i;
	struct inode *inode;

	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list)
		room++;
	spin_unlock(&sb->s_inode_list_lock);
	dead->inodes = kvcalloc(room, sizeof(*dead->inodes), GFP_KERNEL);
	if (!dead->inodes)
		return false;
	spin_lock(&sb->s_inode_list_lock);
	list_for_each_entry(inode, &sb->s_inodes, i_sb_list) {
		if (n < room) {
			dead->inodes[n].held = igrab(inode);
			dead->inodes[n++].inode = inode;
		}
		park_inode(inode);
	}
	spin_unlock(&sb->s_inode_list_lock);
	dead->n_inodes = n;
	for (i = 0; i < n; i++)
		if (dead->inodes[i].held)
			dead->inodes[i].dentry = d_find_any_alias(dead->inodes[i].inode);
	return true;
}

/* The number of threads that write by way of the kernel's part; those that began when it was something else may have ended since. */
static int writers(struct super_block *sb)
{
	int level, n = 0;

	for (level = 0; level < SB_FREEZE_FS; level++)
		n += guardrail_writers(sb, level);
	return n;
}

/* The file system keeps its block device for itself; the device and what is cached of it stay without that. */
static bool give_up_device(struct dead_fs *dead)
{
	struct super_block *sb = dead->sb;

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
	struct block_device *device = sb->s_bdev;
	struct block_device *own = blkdev_get_by_dev(device->bd_dev, FMODE_READ, NULL);

	if (IS_ERR(own))
		return false;
	dead->device = own;
	WRITE_ONCE(sb->s_bdev, NULL);
	sync_blockdev(device);
	blkdev_put(device, sb->s_mode | FMODE_EXCL);
#else
	struct file *device = sb->s_bdev_file;
	struct file *own = bdev_file_open_by_dev(sb->s_dev, BLK_OPEN_READ, NULL, NULL);

	if (IS_ERR(own))
		return false;
	dead->device = own;
	sync_blockdev(sb->s_bdev);
	WRITE_ONCE(sb->s_bdev, NULL);
	WRITE_ONCE(sb->s_bdev_file, NULL);
	bdev_fput(device);
#endif
	return true;
}

static void release_device(struct dead_fs *dead)
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

/* The kernel knows a superblock by its type, which is in the driver. */
static bool change_type(struct super_block *sb)
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

static struct dead_fs *new_dead(struct note *note)
{
	struct dead_fs *dead = kzalloc(sizeof(*dead), GFP_KERNEL);

	if (!dead)
		return NULL;
	*dead = (struct dead_fs){
		.domain = note->domain, .sb = note->sb, .source = note->source, .options = note->options,
		.type = kstrdup(note->type, GFP_KERNEL),
	};
	note->source = note->options = NULL;
	return dead;
}

/* Waits until nobody is about to call the driver. */
static void wait_for_others(struct super_block *sb)
{
	unsigned long end = jiffies + msecs_to_jiffies(WRITERS_MS);

	while (writers(sb) > 0 && time_before(jiffies, end))
		msleep(5);
	synchronize_rcu_tasks();
	synchronize_rcu();
	msleep(GRACE_MS);
	rcu_barrier();
}

static bool park(struct dead_fs *dead)
{
	struct super_block *sb = dead->sb;
	unsigned long flags;

	if (!dead->type || !change_type(sb))
		return false;
	spin_lock_irqsave(&dead_lock, flags);
	list_add(&dead->list, &dead_list);
	spin_unlock_irqrestore(&dead_lock, flags);
	WRITE_ONCE(sb->s_op, &dead_super_operations);
	WRITE_ONCE(sb->s_export_op, NULL);
	WRITE_ONCE(sb->s_xattr, (void *)no_xattrs);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
	WRITE_ONCE(sb->s_d_op, &dead_dentry_operations);
#else
	WRITE_ONCE(sb->__s_d_op, &dead_dentry_operations);
#endif
	if (!park_inodes(dead))
		return false;
	guardrail_park_files(sb);
	guardrail_unlock_data(dead);
	wait_for_others(sb);
	guardrail_unlock_data(dead);
	/* Whoever was about to open one, or to find one. */
	shrink_dcache_sb(sb);
	guardrail_park_files(sb);
	/* The reference of the driver's module that the superblock had stays, and so does the module. */
	return give_up_device(dead);
}

/* Waits until the kernel knows no superblock of the domain's types, but for those that were parked. */
static bool none_left(u32 domain)
{
	unsigned long end = jiffies + msecs_to_jiffies(WRITERS_MS);
	int i = 0;

	while (i < TYPES) {
		if (!types[domain][i] || hlist_empty(&types[domain][i]->fs_supers))
			i++;
		else if (time_after(jiffies, end))
			return false;
		else
			msleep(5);
	}
	return true;
}

int guardrail_park_fs(u32 domain)
{
	struct note *note, *next;
	struct dead_fs *dead;
	bool all = true;
	int n = 0;

	if (!test_bit(domain, &fs_domains))
		return 0;
	mutex_lock(&notes_lock);
	list_for_each_entry_safe(note, next, &notes, list) {
		struct super_block *sb = note->sb;

		if (note->domain != domain || !sb || !sb->s_bdev || !atomic_inc_not_zero(&sb->s_active))
			continue;
		dead = new_dead(note);
		all &= dead && park(dead);
		n++;
		free_note(note);
	}
	mutex_unlock(&notes_lock);
	if (!all || !none_left(domain)) {
		pr_err("domain %u has a file system that cannot stay without its driver: it is on no block device, nothing was noted of how it was mounted, or there is no memory\n",
		       domain);
		return -EBUSY;
	}
	if (n)
		pr_info("domain %u: %d file systems stay\n", domain, n);
	return n;
}

bool guardrail_keeps_allocation(u32 domain, unsigned long start, unsigned long size)
{
	struct dead_fs *dead;
	unsigned long flags;
	bool found = false;
	unsigned int i;

	if (list_empty(&dead_list))
		return false;
	spin_lock_irqsave(&dead_lock, flags);
	list_for_each_entry(dead, &dead_list, list) {
		if (dead->domain != domain)
			continue;
		for (i = 0; i < dead->n_inodes && !found; i++) {
			unsigned long inode = (unsigned long)dead->inodes[i].inode;

			if (inode < start || inode >= start + size)
				continue;
			dead->offset = inode - start;
			dead->size = size;
			found = true;
		}
	}
	spin_unlock_irqrestore(&dead_lock, flags);
	return found;
}

/* The same device, mounted by the driver that has come. */
static struct vfsmount *mount_anew(const struct dead_fs *dead)
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

/* What was only held for the time of the recovery. */
static void release(struct dead_fs *dead)
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

static bool restore(struct dead_fs *dead)
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

static struct dead_fs *next_dead(u32 domain)
{
	struct dead_fs *dead, *found = NULL;

	spin_lock_irq(&dead_lock);
	list_for_each_entry(dead, &dead_list, list)
		if (dead->domain == domain && !dead->restored)
			found = dead;
	spin_unlock_irq(&dead_lock);
	return found;
}

unsigned int guardrail_restore_fs(u32 domain)
{
	unsigned int failed = 0;
	struct dead_fs *dead;

	while ((dead = next_dead(domain))) {
		failed += !restore(dead);
		dead->restored = true;
	}
	return failed;
}

/* What stands in a structure of functions, where all pointers on the way can be read. */
#define FUNCTION(p, ops, member)                                                                         \
	({                                                                                               \
		typeof((p)->ops) functions;                                                              \
		unsigned long function = 0;                                                              \
		if (get_kernel_nofault(functions, &(p)->ops) ||                                          \
		    get_kernel_nofault(function, (unsigned long *)&functions->member))                   \
			function = 0;                                                                    \
		function;                                                                                \
	})

/* The entry is that of this function. */
static bool is_at(const struct guardrail_record *record, unsigned long function)
{
	return function && record->saved.ip - function < THUNK;
}

/* What the kernel relies on, even where its call is not made or was ended. */
static void settle(const struct guardrail_record *record, bool ended)
{
	struct super_block *sb;
	struct inode *inode = (struct inode *)record->frame.args[0];
	struct address_space *mapping = (struct address_space *)record->frame.args[1];
	struct folio *folio = (struct folio *)record->frame.args[1];

	if (!in_task() || irqs_disabled() || preempt_count())
		return;
	if (!get_kernel_nofault(sb, &inode->i_sb) && sb && is_at(record, FUNCTION(sb, s_op, evict_inode))) {
		if (!(guardrail_inode_state(inode) & I_CLEAR))
			dead_evict_inode(inode);
		return;
	}
	if (ended)
		return;
	if (is_at(record, FUNCTION(mapping, a_ops, write_end))) {
		struct page *page = (struct page *)record->frame.args[5];

		folio_unlock(page_folio(page));
		folio_put(page_folio(page));
		return;
	}
	if (!get_kernel_nofault(mapping, &folio->mapping) && is_at(record, FUNCTION(mapping, a_ops, read_folio)))
		folio_unlock(folio);
}

void guardrail_fs_left(const struct guardrail_record *record, bool ended)
{
	u32 domain = record->entry->domain;

	if (!test_bit(domain, &fs_domains))
		return;
	settle(record, ended);
	guardrail_restart(domain, ended);
}

bool guardrail_has_fs(u32 domain)
{
	return test_bit(domain, &fs_domains);
}
