// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What refers to a file system whose driver has died, and is to refer to the one that is mounted in its place: mounts, open files, the folders
 * that processes are in. All of these stay where they are and get another inode, so descriptors, positions and whoever shares them do not change.
 */
#include <linux/buffer_head.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/fs_struct.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/mount.h>
#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/percpu-rwsem.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "internal.h"
#include "recovery/recover.h"

/* No more files and mounts are looked for, nor processes. */
#define MOST 65536
#define MOST_MOUNTS 1024
/* How far from the list of a superblock's mounts the rest of a mount is. */
#define MOUNT_WORDS 64
/* Who holds the lock of a folio so long does not give it back; for how long memory maps that are in use are tried. */
#define LOCKED_MS 1000
#define MAPS_MS 1000

/* --- Finding what refers to it. */

struct found {
	const struct super_block *sb;
	void **p;
	unsigned int n, most;
	bool more;	/* there was no room for all */
};

static bool find_begin(struct found *found, const struct super_block *sb, unsigned int most)
{
	*found = (struct found){ .sb = sb, .most = most, .p = kvmalloc_array(most, sizeof(void *), GFP_KERNEL) };
	return found->p;
}

/* True where it was not known. */
static bool note(struct found *found, void *p)
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

static bool is_of(const struct file *file, const struct super_block *sb)
{
	return file && file_inode(file) && file_inode(file)->i_sb == sb;
}

static int note_file(const void *data, struct file *file, unsigned int fd)
{
	struct found *found = (struct found *)data;

	if (is_of(file, found->sb) && note(found, file))
		get_file(file);
	return 0;
}

/* Files by what processes have mapped. */
static void find_mapped(struct found *found, struct mm_struct *mm)
{
	unsigned long end = jiffies + msecs_to_jiffies(MAPS_MS);
	struct vm_area_struct *vma;
	VMA_ITERATOR(vmi, mm, 0);

	while (!mmap_read_trylock(mm)) {
		if (time_after(jiffies, end)) {
			found->more = true;
			return;
		}
		msleep(5);
	}
	for_each_vma(vmi, vma)
		if (is_of(vma->vm_file, found->sb) && note(found, vma->vm_file))
			get_file(vma->vm_file);
	mmap_read_unlock(mm);
}

/* Those in tables of descriptors, and where @mapped says so what is mapped; each is held. */
static bool find_files(struct found *found, const struct super_block *sb, bool mapped)
{
	struct task_struct *process, *thread;
	struct found maps;
	unsigned int i;

	if (!find_begin(found, sb, MOST))
		return false;
	if (!find_begin(&maps, sb, MOST)) {
		kvfree(found->p);
		return false;
	}
	rcu_read_lock();
	for_each_process(process) {
		struct mm_struct *mm = get_task_mm(process);

		for_each_thread(process, thread) {
			task_lock(thread);
			if (thread->files && (thread == process || thread->files != process->files))
				iterate_fd(thread->files, 0, (void *)note_file, found);
			task_unlock(thread);
		}
		if (mm && (!mapped || !note(&maps, mm)))
			mmput_async(mm);
	}
	rcu_read_unlock();
	for (i = 0; i < maps.n; i++) {
		find_mapped(found, maps.p[i]);
		mmput(maps.p[i]);
	}
	found->more |= maps.more;
	kvfree(maps.p);
	return true;
}

static void release_files(struct found *found)
{
	unsigned int i;

	for (i = 0; i < found->n; i++)
		fput(found->p[i]);
	kvfree(found->p);
}

void guardrail_park_files(const struct super_block *sb)
{
	struct found found;
	unsigned int i;

	if (!find_files(&found, sb, true))
		return;
	for (i = 0; i < found.n; i++) {
		struct file *file = found.p[i];
		const struct file_operations *old = file->f_op;

		if (old == &guardrail_dead_file_operations)
			continue;
		__module_get(THIS_MODULE);
		WRITE_ONCE(file->f_op, &guardrail_dead_file_operations);
		fops_put(old);
	}
	release_files(&found);
}

/* --- The same name in the new file system. */

/* Exported, but declared for the kernel itself alone. */
int vfs_path_lookup(struct dentry *dentry, struct vfsmount *mount, const char *name, unsigned int flags, struct path *path);

static int find_same(const struct dentry *old, struct vfsmount *root, struct path *path)
{
	char *buffer, *name;
	int err = -ENOENT;

	/* It was removed: its name, if there is one, means another. */
	if (!d_inode(old) || (d_unlinked((struct dentry *)old) && !d_inode(old)->i_nlink))
		return err;
	buffer = kmalloc(PATH_MAX, GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	name = dentry_path_raw((struct dentry *)old, buffer, PATH_MAX);
	err = IS_ERR(name) ? PTR_ERR(name) : vfs_path_lookup(root->mnt_root, root, name, 0, path);
	kfree(buffer);
	if (err)
		return err;
	if (d_inode(path->dentry) && !((d_inode(path->dentry)->i_mode ^ d_inode(old)->i_mode) & S_IFMT))
		return 0;
	path_put(path);
	return -ENOENT;
}

/* --- Data. */

/* Whoever has locked a folio and does not unlock it was ended. */
static void unlock_folio(struct folio *folio)
{
	unsigned long end = jiffies + msecs_to_jiffies(LOCKED_MS);

	while (folio_test_locked(folio)) {
		if (time_after(jiffies, end)) {
			folio_unlock(folio);
			return;
		}
		msleep(5);
	}
}

/* The next folio that is cached, which is held; NULL behind the last. */
static struct folio *next_folio(struct address_space *mapping, unsigned long *index)
{
	struct folio *folio;

	while (xa_find(&mapping->i_pages, index, ULONG_MAX, XA_PRESENT)) {
		folio = filemap_get_folio(mapping, *index);
		if (!IS_ERR_OR_NULL(folio))
			return folio;
		if (*index == ULONG_MAX)
			return NULL;
		++*index;
	}
	return NULL;
}

static void unlock_folios(struct address_space *mapping)
{
	unsigned long index = 0;
	struct folio *folio;

	while ((folio = next_folio(mapping, &index))) {
		unlock_folio(folio);
		index = folio_next_index(folio);
		folio_put(folio);
	}
}

void guardrail_unlock_data(struct dead_fs *dead)
{
	unsigned int i;

	for (i = 0; i < dead->n_inodes; i++)
		if (dead->inodes[i].held && S_ISREG(dead->inodes[i].inode->i_mode))
			unlock_folios(&dead->inodes[i].inode->i_data);
}

/* A piece that is cached is written where the file does not have it. */
static int copy_piece(struct file *file, const void *data, size_t size, loff_t pos, void *buffer)
{
	loff_t at = pos;
	ssize_t n = kernel_read(file, buffer, size, &at);

	if (n == size && !memcmp(data, buffer, size))
		return 0;
	at = pos;
	n = kernel_write(file, data, size, &at);
	return n == size ? 0 : n < 0 ? n : -EIO;
}

/* Of a page that is not cached as a whole, the blocks that are. */
static int copy_cached_page(struct file *file, struct folio *folio, struct page *page, loff_t pos, loff_t size, void *buffer)
{
	struct buffer_head *head, *bh;
	int err = 0;

	if (folio_test_uptodate(folio))
		return copy_piece(file, page_address(page), min_t(loff_t, PAGE_SIZE, size - pos), pos, buffer);
	head = folio_order(folio) ? NULL : folio_buffers(folio);
	bh = head;
	while (bh && !err) {
		loff_t from = pos + bh_offset(bh);

		if (buffer_uptodate(bh) && from < size)
			err = copy_piece(file, bh->b_data, min_t(loff_t, bh->b_size, size - from), from, buffer);
		bh = bh->b_this_page;
		if (bh == head)
			break;
	}
	return err;
}

static int copy_cached(struct inode *inode, struct file *file)
{
	void *buffer = (void *)__get_free_page(GFP_KERNEL);
	loff_t size = i_size_read(inode);
	unsigned long index = 0;
	struct folio *folio;
	int err = buffer ? 0 : -ENOMEM;

	while (!err && index < DIV_ROUND_UP_ULL(size, PAGE_SIZE) && (folio = next_folio(&inode->i_data, &index))) {
		if ((loff_t)index << PAGE_SHIFT < size)
			err = copy_cached_page(file, folio, folio_file_page(folio, index), (loff_t)index << PAGE_SHIFT, size, buffer);
		folio_put(folio);
		index++;
		cond_resched();
	}
	free_page((unsigned long)buffer);
	return err;
}

unsigned int guardrail_inode_state(struct inode *inode)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
	return READ_ONCE(inode->i_state);
#else
	return inode_state_read_once(inode);
#endif
}

static bool is_dirty(struct inode *inode, const struct inode *now)
{
	struct address_space *mapping = &inode->i_data;

	return guardrail_inode_state(inode) & I_DIRTY || mapping_tagged(mapping, PAGECACHE_TAG_DIRTY) || mapping_tagged(mapping, PAGECACHE_TAG_WRITEBACK) ||
	       test_bit(AS_EIO, &mapping->flags) || test_bit(AS_ENOSPC, &mapping->flags) || i_size_read(inode) != i_size_read(now);
}

static int copy_inode(struct inode *inode, const struct path *path)
{
	struct file *file;
	int err;

	if (!is_dirty(inode, d_inode(path->dentry)))
		return 0;
	/* What was allocated for it, and is behind its end as long as the size of the old one was not written. */
	err = vfs_truncate(path, i_size_read(d_inode(path->dentry)));
	if (err)
		return err;
	file = dentry_open(path, O_RDWR | O_LARGEFILE, current_cred());
	if (IS_ERR(file))
		return PTR_ERR(file);
	err = copy_cached(inode, file);
	if (i_size_read(file_inode(file)) != i_size_read(inode))
		err = vfs_truncate(path, i_size_read(inode)) ?: err;
	fput(file);
	return err;
}

void guardrail_copy_data(struct dead_fs *dead, struct vfsmount *root)
{
	unsigned int i;

	for (i = 0; i < dead->n_inodes && !sb_rdonly(dead->sb); i++) {
		struct inode *inode = dead->inodes[i].inode;
		struct path path;
		int err;

		if (!dead->inodes[i].held || !dead->inodes[i].dentry || !S_ISREG(inode->i_mode) ||
		    find_same(dead->inodes[i].dentry, root, &path))
			continue;
		err = copy_inode(inode, &path);
		if (err) {
			pr_err("%s: what was written to %pd is not whole any more (error %d)\n", dead->source, path.dentry, err);
			mapping_set_error(d_inode(path.dentry)->i_mapping, err);
		}
		path_put(&path);
	}
}

/* --- Handing over. */

/* True where the kernel counts the file with its inode. */
static bool is_counted(const struct file *file)
{
	return file->f_mode & FMODE_WRITER || (file->f_mode & (FMODE_READ | FMODE_WRITE)) == FMODE_READ;
}

/* How many files are open, as the kernel counts them. */
static unsigned int count_open(const struct dead_fs *dead)
{
	unsigned int i, n = 0;

	for (i = 0; i < dead->n_inodes; i++) {
		if (!dead->inodes[i].held)
			continue;
		n += max(atomic_read(&dead->inodes[i].inode->i_writecount), 0);
#ifdef CONFIG_IMA
		n += atomic_read(&dead->inodes[i].inode->i_readcount);
#endif
	}
	return n;
}

/* A file that a process has mapped cannot get another inode: the kernel finds mappings by that. */
static bool hand_over_file(struct file *file, struct vfsmount *root, struct dentry **was)
{
	struct inode *old = file_inode(file), *inode;
	const struct file_operations *functions;
	struct path path;

	if (file->f_op != &guardrail_dead_file_operations || mapping_mapped(&old->i_data) || find_same(file->f_path.dentry, root, &path))
		return false;
	inode = d_inode(path.dentry);
	functions = fops_get(inode->i_fop);
	if (!functions || (file->f_mode & FMODE_WRITER && get_write_access(inode))) {
		fops_put(functions);
		path_put(&path);
		return false;
	}
	if (file->f_mode & FMODE_WRITER)
		put_write_access(old);
	if ((file->f_mode & (FMODE_READ | FMODE_WRITE)) == FMODE_READ) {
		i_readcount_inc(inode);
		i_readcount_dec(old);
	}
	*was = file->f_path.dentry;
	file->f_inode = inode;
	file->f_mapping = inode->i_mapping;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
	file->f_path.dentry = dget(path.dentry);
#else
	file->__f_path.dentry = dget(path.dentry);
#endif
	file->f_wb_err = filemap_sample_wb_err(file->f_mapping);
	file->f_sb_err = file_sample_sb_err(file);
	smp_wmb();
	WRITE_ONCE(file->f_op, functions);
	module_put(THIS_MODULE);
	path_put(&path);
	return true;
}

static bool hand_over_files(struct dead_fs *dead, struct vfsmount *root, unsigned int *n)
{
	unsigned int i, open = count_open(dead), counted = 0;
	struct found found;

	if (!find_files(&found, dead->sb, false))
		return false;
	for (i = 0; i < found.n; i++) {
		struct file *file = found.p[i];
		struct dentry *was = NULL;

		counted += is_counted(file);
		if (hand_over_file(file, root, &was))
			++*n;
		else
			dead->lost++;
		fput(file);
		/* Whoever has read it may look at it for a moment. */
		found.p[i] = was;
	}
	synchronize_rcu();
	msleep(20);
	for (i = 0; i < found.n; i++)
		dput(found.p[i]);
	kvfree(found.p);
	if (open > counted)
		pr_warn("%s: %u open files are in no table of descriptors (mapped, on their way through a socket, the image of a loop device), and fail\n",
			dead->source, open - counted);
	return !found.more;
}

/* Mounts on its folders are found by the old names, which nobody comes by any more. */
static void tell_mounts_below(const struct dead_fs *dead)
{
	unsigned int i, n = 0;

	for (i = 0; i < dead->n_inodes; i++)
		n += dead->inodes[i].dentry && d_mountpoint(dead->inodes[i].dentry);
	if (n)
		pr_warn("%s: what is mounted on %u of its folders cannot be reached any more\n", dead->source, n);
}

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
static void lock_fs(struct fs_struct *fs)
{
	spin_lock(&fs->lock);
	write_seqcount_begin(&fs->seq);
}

static void unlock_fs(struct fs_struct *fs)
{
	write_seqcount_end(&fs->seq);
	spin_unlock(&fs->lock);
}
#else
static void lock_fs(struct fs_struct *fs)
{
	write_seqlock(&fs->seq);
}

static void unlock_fs(struct fs_struct *fs)
{
	write_sequnlock(&fs->seq);
}
#endif

/* A process of which a folder is in the file system; it is held. */
static struct dentry *find_folder(const struct super_block *sb, struct found *others)
{
	struct task_struct *process, *thread;
	struct dentry *found = NULL;

	rcu_read_lock();
	for_each_process_thread(process, thread) {
		struct path paths[2];
		int i;

		if (found)
			break;
		task_lock(thread);
		if (thread->fs) {
			get_fs_root(thread->fs, &paths[0]);
			get_fs_pwd(thread->fs, &paths[1]);
			for (i = 0; i < 2 && !found; i++)
				if (paths[i].dentry->d_sb == sb && note(others, paths[i].dentry))
					found = dget(paths[i].dentry);
			/* The process has them as well, so that these are not the last. */
			path_put(&paths[0]);
			path_put(&paths[1]);
		}
		task_unlock(thread);
	}
	rcu_read_unlock();
	return found;
}

static unsigned int replace_folder(struct dentry *old, struct dentry *now)
{
	struct task_struct *process, *thread;
	unsigned int n = 0;

	rcu_read_lock();
	for_each_process_thread(process, thread) {
		struct fs_struct *fs;

		task_lock(thread);
		fs = thread->fs;
		if (fs) {
			lock_fs(fs);
			if (fs->root.dentry == old) {
				fs->root.dentry = dget(now);
				n++;
			}
			if (fs->pwd.dentry == old) {
				fs->pwd.dentry = dget(now);
				n++;
			}
			unlock_fs(fs);
		}
		task_unlock(thread);
	}
	rcu_read_unlock();
	return n;
}

static void hand_over_folders(struct dead_fs *dead, struct vfsmount *root)
{
	struct dentry *old;
	struct found others;
	struct path path;
	unsigned int n;

	if (!find_begin(&others, dead->sb, MOST_MOUNTS))
		return;
	while ((old = find_folder(dead->sb, &others))) {
		if (find_same(old, root, &path)) {
			dead->lost++;
		} else {
			for (n = replace_folder(old, path.dentry); n; n--)
				dput(old);
			path_put(&path);
		}
		dput(old);
	}
	kvfree(others.p);
}

/* Where a mount is in the list of its superblock's; its own part is known by what it has to be. */
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

static void find_mounts(struct found *found, struct super_block *sb)
{
	struct list_head *link;

	list_for_each(link, &sb->s_mounts) {
		struct vfsmount *mount = mount_of(link, sb);

		if (mount && note(found, mount))
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
/* Two words of a mount: the next mount, and the pointer that leads to it, of which the last bit says something else. */
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

static void find_mounts(struct found *found, struct super_block *sb)
{
	struct mount *one = sb->s_mounts;
	struct link *link = one ? link_of(one, &sb->s_mounts) : NULL;

	for (; one && link; one = link->next, link = one ? link_of(one, &link->next) : NULL) {
		struct vfsmount *mount = mount_of(one, sb);

		if (mount && note(found, mount))
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

static int hand_over_mounts(struct dead_fs *dead, struct vfsmount *root, unsigned int *n)
{
	seqlock_t *mount_lock = (seqlock_t *)guardrail_find_symbol("mount_lock");
	struct super_block *sb = root->mnt_sb;
	struct found found;
	unsigned int i;

	if (!mount_lock || !find_begin(&found, dead->sb, MOST_MOUNTS))
		return -ENOMEM;
	write_seqlock(mount_lock);
	find_mounts(&found, dead->sb);
	write_sequnlock(mount_lock);
	for (i = 0; i < found.n; i++) {
		struct vfsmount *mount = found.p[i];
		struct dentry *old = mount->mnt_root;
		struct path path;

		if (find_same(old, root, &path)) {
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

int guardrail_writers(const struct super_block *sb, int level)
{
	int cpu, n = 0;

	/* One processor counts down what another has counted up. */
	for_each_possible_cpu(cpu)
		n += (int)*per_cpu_ptr(sb->s_writers.rw_sem[level].read_count, cpu);
	return n;
}

/* Writers that began before have ended, or will end, where they find the new file system. */
static void move_writers(struct super_block *from, struct super_block *to)
{
	int level = SB_FREEZE_WRITE - 1, n = guardrail_writers(from, level);

	this_cpu_sub(*from->s_writers.rw_sem[level].read_count, n);
	this_cpu_add(*to->s_writers.rw_sem[level].read_count, n);
}

int guardrail_hand_over(struct dead_fs *dead, struct vfsmount *root)
{
	unsigned int files = 0, mounts = 0;
	int err = hand_over_mounts(dead, root, &mounts);

	if (err)
		return err;
	if (!hand_over_files(dead, root, &files))
		pr_warn("%s: not all files could be looked at\n", dead->source);
	hand_over_folders(dead, root);
	move_writers(dead->sb, root->mnt_sb);
	tell_mounts_below(dead);
	pr_info("%s is mounted again as %s: %u mounts and %u open files go on%s\n", dead->source, dead->type, mounts, files,
		dead->lost ? ", but not all" : "");
	return 0;
}
