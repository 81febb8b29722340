// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Open files and folders of processes, which are moved to the new file system; fs_recovery.h
 * describes it.
 */
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs_struct.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/namei.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "base/grace.h"
#include "classes/fs_found.h"
#include "classes/fs_recovery.h"

/* The most files, and the most processes, that are looked for. */
#define MOST 65536
/* How long moving memory maps that are in use is tried. */
#define MAPS_MS 1000

static bool is_of(const struct file *file, const struct super_block *sb)
{
	return file && file_inode(file) && file_inode(file)->i_sb == sb;
}

static int note_file(const void *data, struct file *file, unsigned int fd)
{
	struct guardrail_found *found = (struct guardrail_found *)data;

	if (is_of(file, found->sb) && guardrail_found_note(found, file))
		get_file(file);
	return 0;
}

/* Finds the files that a process has mapped. */
static void find_mapped(struct guardrail_found *found, struct mm_struct *mm)
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
		if (is_of(vma->vm_file, found->sb) && guardrail_found_note(found, vma->vm_file))
			get_file(vma->vm_file);
	mmap_read_unlock(mm);
}

/* Finds files in tables of descriptors, and if @mapped says so, mapped ones; each is held. */
static bool find_files(struct guardrail_found *found, const struct super_block *sb, bool mapped)
{
	struct task_struct *process, *thread;
	struct guardrail_found maps;
	unsigned int i;

	if (!guardrail_found_begin(found, sb, MOST))
		return false;
	if (!guardrail_found_begin(&maps, sb, MOST)) {
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
		if (mm && (!mapped || !guardrail_found_note(&maps, mm)))
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

static void release_files(struct guardrail_found *found)
{
	unsigned int i;

	for (i = 0; i < found->n; i++)
		fput(found->p[i]);
	kvfree(found->p);
}

void guardrail_park_files(const struct super_block *sb)
{
	struct guardrail_found found;
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

/* The kernel exports it, but declares it in a private header. */
int vfs_path_lookup(struct dentry *dentry, struct vfsmount *mount, const char *name, unsigned int flags, struct path *path);

int guardrail_find_same(const struct dentry *old, struct vfsmount *root, struct path *path)
{
	char *buffer, *name;
	int err = -ENOENT;

	/* The file was removed: its name, if any, belongs to another file. */
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

/* True where the kernel counts the file with its inode. */
static bool is_counted(const struct file *file)
{
	return file->f_mode & FMODE_WRITER || (file->f_mode & (FMODE_READ | FMODE_WRITE)) == FMODE_READ;
}

/* How many files are open, as the kernel counts them. */
static unsigned int count_open(const struct guardrail_dead_fs *dead)
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

/* A mapped file cannot get another inode, by which the kernel finds mappings. */
static bool hand_over_file(struct file *file, struct vfsmount *root, struct dentry **was)
{
	struct inode *old = file_inode(file), *inode;
	const struct file_operations *functions;
	struct path path;

	if (file->f_op != &guardrail_dead_file_operations || mapping_mapped(&old->i_data) || guardrail_find_same(file->f_path.dentry, root, &path))
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

static bool hand_over_files(struct guardrail_dead_fs *dead, struct vfsmount *root, unsigned int *n)
{
	unsigned int i, open = count_open(dead), counted = 0;
	struct guardrail_found found;

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
		/* Another thread may have read the old pointer a moment ago. */
		found.p[i] = was;
	}
	guardrail_wait_readers();
	for (i = 0; i < found.n; i++)
		dput(found.p[i]);
	kvfree(found.p);
	if (open > counted)
		pr_warn("%s: %u open files are in no table of descriptors (mapped, on their way through a socket, the image of a loop device), and fail\n",
			dead->source, open - counted);
	return !found.more;
}

/* Mounts on its folders are found by the old names, which no path reaches any more. */
static void warn_of_mounts_below(const struct guardrail_dead_fs *dead)
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

/* Finds and holds a folder of a process that is in the file system. */
static struct dentry *find_folder(const struct super_block *sb, struct guardrail_found *others)
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
				if (paths[i].dentry->d_sb == sb && guardrail_found_note(others, paths[i].dentry))
					found = dget(paths[i].dentry);
			/* The process holds them as well, so these references are not the last. */
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

static void hand_over_folders(struct guardrail_dead_fs *dead, struct vfsmount *root)
{
	struct dentry *old;
	struct guardrail_found others;
	struct path path;
	unsigned int n;

	if (!guardrail_found_begin(&others, dead->sb, GUARDRAIL_MOST_MOUNTS))
		return;
	while ((old = find_folder(dead->sb, &others))) {
		if (guardrail_find_same(old, root, &path)) {
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

int guardrail_writers(const struct super_block *sb, int level)
{
	int cpu, n = 0;

	/* One processor may decrement what another has incremented. */
	for_each_possible_cpu(cpu)
		n += (int)*per_cpu_ptr(sb->s_writers.rw_sem[level].read_count, cpu);
	return n;
}

/* Moves the count of writers: these have ended, or will end in the new file system. */
static void move_writers(struct super_block *from, struct super_block *to)
{
	int level = SB_FREEZE_WRITE - 1, n = guardrail_writers(from, level);

	this_cpu_sub(*from->s_writers.rw_sem[level].read_count, n);
	this_cpu_add(*to->s_writers.rw_sem[level].read_count, n);
}

int guardrail_hand_over(struct guardrail_dead_fs *dead, struct vfsmount *root)
{
	unsigned int files = 0, mounts = 0;
	int err = guardrail_move_mounts(dead, root, &mounts);

	if (err)
		return err;
	if (!hand_over_files(dead, root, &files))
		pr_warn("%s: not all files could be looked at\n", dead->source);
	hand_over_folders(dead, root);
	move_writers(dead->sb, root->mnt_sb);
	warn_of_mounts_below(dead);
	pr_info("%s is mounted again as %s: %u mounts and %u open files go on%s\n", dead->source, dead->type, mounts, files,
		dead->lost ? ", but not all" : "");
	return 0;
}
