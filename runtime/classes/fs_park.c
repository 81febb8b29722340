// SPDX-License-Identifier: GPL-2.0-or-later
/* Takes file systems from a dead driver; fs_recovery.h describes it. */
#include <linux/blkdev.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/percpu-rwsem.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "base/grace.h"
#include "classes/fs_recovery.h"

/* How long to wait for writers. */
#define WRITERS_MS 2000

LIST_HEAD(guardrail_dead_fs_list);
DEFINE_SPINLOCK(guardrail_dead_fs_lock);

/* Parks all inodes; each is held, with a name. */
static bool park_inodes(struct guardrail_dead_fs *dead)
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
		guardrail_dead_inode(inode);
	}
	spin_unlock(&sb->s_inode_list_lock);
	dead->n_inodes = n;
	for (i = 0; i < n; i++)
		if (dead->inodes[i].held)
			dead->inodes[i].dentry = d_find_any_alias(dead->inodes[i].inode);
	return true;
}

/* Counts the threads that write through the kernel. Those that began before it counted may have ended since. */
static int writers(struct super_block *sb)
{
	int level, n = 0;

	for (level = 0; level < SB_FREEZE_FS; level++)
		n += guardrail_writers(sb, level);
	return n;
}

/* The file system releases its exclusive use of the block device; the device and its cache stay. */
static bool give_up_device(struct guardrail_dead_fs *dead)
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

static struct guardrail_dead_fs *new_dead(struct guardrail_fs_note *note)
{
	struct guardrail_dead_fs *dead = kzalloc(sizeof(*dead), GFP_KERNEL);

	if (!dead)
		return NULL;
	*dead = (struct guardrail_dead_fs){
		.domain = note->domain, .sb = note->sb, .source = note->source, .options = note->options,
		.type = kstrdup(note->type, GFP_KERNEL),
	};
	note->source = note->options = NULL;
	return dead;
}

/* Waits until no thread is about to call the driver. */
static void wait_for_others(struct super_block *sb)
{
	unsigned long end = jiffies + msecs_to_jiffies(WRITERS_MS);

	while (writers(sb) > 0 && time_before(jiffies, end))
		msleep(5);
	if (writers(sb) > 0)
		pr_warn("%s: a thread still writes after %u ms; what it does then fails\n", sb->s_id, WRITERS_MS);
	/* A thread that slept meanwhile calls functions of the dead driver, which are refused: its modules are kept. */
	guardrail_wait_readers();
	rcu_barrier();
}

static bool park(struct guardrail_dead_fs *dead)
{
	struct super_block *sb = dead->sb;
	unsigned long flags;

	if (!dead->type || !guardrail_dead_super_type(sb))
		return false;
	spin_lock_irqsave(&guardrail_dead_fs_lock, flags);
	list_add(&dead->list, &guardrail_dead_fs_list);
	spin_unlock_irqrestore(&guardrail_dead_fs_lock, flags);
	guardrail_dead_super(sb);
	if (!park_inodes(dead))
		return false;
	guardrail_park_files(sb);
	guardrail_unlock_data(dead);
	wait_for_others(sb);
	guardrail_unlock_data(dead);
	/* Another thread was about to open or find a file. */
	shrink_dcache_sb(sb);
	guardrail_park_files(sb);
	/* The superblock keeps its reference to the driver's module, so the module stays. */
	return give_up_device(dead);
}

/* Waits until the kernel knows no other superblocks of the domain's types. */
static bool none_left(u32 domain)
{
	unsigned long end = jiffies + msecs_to_jiffies(WRITERS_MS);
	int i = 0;

	while (i < GUARDRAIL_FS_TYPES) {
		if (!guardrail_fs_types[domain][i] || hlist_empty(&guardrail_fs_types[domain][i]->fs_supers))
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
	struct guardrail_fs_note *note, *next;
	struct guardrail_dead_fs *dead;
	bool all = true;
	int n = 0;

	if (!test_bit(domain, &guardrail_fs_domains))
		return 0;
	mutex_lock(&guardrail_fs_notes_lock);
	list_for_each_entry_safe(note, next, &guardrail_fs_notes, list) {
		struct super_block *sb = note->sb;

		if (note->domain != domain || !sb || !sb->s_bdev || !atomic_inc_not_zero(&sb->s_active))
			continue;
		dead = new_dead(note);
		all &= dead && park(dead);
		n++;
		guardrail_fs_note_free(note);
	}
	mutex_unlock(&guardrail_fs_notes_lock);
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
	struct guardrail_dead_fs *dead;
	unsigned long flags;
	bool found = false;
	unsigned int i;

	if (list_empty(&guardrail_dead_fs_list))
		return false;
	spin_lock_irqsave(&guardrail_dead_fs_lock, flags);
	list_for_each_entry(dead, &guardrail_dead_fs_list, list) {
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
	spin_unlock_irqrestore(&guardrail_dead_fs_lock, flags);
	return found;
}
