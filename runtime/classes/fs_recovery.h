/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * File systems that stay mounted while their driver is unloaded and loaded anew.
 *
 * fs_mounts.c notes how each was mounted while the driver is alive. When the driver dies, fs_park.c
 * gives superblocks, inodes, names and files functions that refuse (fs_dead.c). When the driver is
 * loaded again, fs_restore.c mounts the same device anew, and all references to the old file system
 * move to the new one. To do so, fs_data.c writes the cached data, fs_mount_move.c moves mounts,
 * and fs_files.c moves open files and folders of processes.
 */
#ifndef GUARDRAIL_CLASSES_FS_RECOVERY_H
#define GUARDRAIL_CLASSES_FS_RECOVERY_H

#include <linux/fs.h>
#include <linux/mount.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>

#include "base/kernel.h"

/* The most types of file systems of a domain. */
#define GUARDRAIL_FS_TYPES 4

/**
 * struct guardrail_fs_note - How something was mounted.
 * @list: Place in the list of notes.
 * @domain: Domain of the driver.
 * @key: While it is being mounted: the context or task; then NULL.
 * @sb: The superblock, once it is mounted.
 * @type: Name of its type.
 * @source: Device or source.
 * @options: Options, separated by commas; NULL for none.
 */
struct guardrail_fs_note {
	struct list_head list;
	u32 domain;
	const void *key;
	struct super_block *sb;
	const char *type;
	char *source, *options;
};

/**
 * struct guardrail_dead_inode - An inode of a file system without a driver, and a name of it.
 * @inode: The inode.
 * @dentry: A name that it has, or NULL.
 * @held: There is a reference to the inode: it was not about to be freed.
 */
struct guardrail_dead_inode {
	struct inode *inode;
	struct dentry *dentry;
	bool held;
};

/**
 * struct guardrail_dead_fs - A mounted file system whose driver is dead.
 * @list: Place in guardrail_dead_fs_list.
 * @domain: Domain of the driver.
 * @sb: The superblock.
 * @type: Name of its type.
 * @source: Device that it was mounted from.
 * @options: Options that it was mounted with, or NULL.
 * @device: Keeps the block device open.
 * @offset: Offset of an inode in its allocation.
 * @size: Bytes in the allocation of an inode; 0 while unknown.
 * @inodes: Its inodes.
 * @n_inodes: How many there are.
 * @lost: Files and folders that could not be moved.
 * @restored: It was mounted anew, or that failed.
 */
struct guardrail_dead_fs {
	struct list_head list;
	u32 domain;
	struct super_block *sb;
	const char *type, *source;
	char *options;
	void *device;
	unsigned long offset, size;
	struct guardrail_dead_inode *inodes;
	unsigned int n_inodes;
	unsigned int lost;
	bool restored;
};

/* All notes, under guardrail_fs_notes_lock. */
extern struct list_head guardrail_fs_notes;
/*
 * Protects guardrail_fs_notes. Taken in process context, also inside teardown_lock of recovery/recover.c. When file
 * systems are parked, guardrail_dead_fs_lock and locks of the kernel's file system layer nest inside.
 */
extern struct mutex guardrail_fs_notes_lock;
/* The types that drivers have registered, by domain. Registration of types is serialized by the drivers. */
extern struct file_system_type *guardrail_fs_types[GUARDRAIL_DOMAINS][GUARDRAIL_FS_TYPES];
/* Domains that have had a type of file systems, a bit each. */
extern unsigned long guardrail_fs_domains;

/* All file systems without a driver; they stay in the list for good. */
extern struct list_head guardrail_dead_fs_list;
/* Protects guardrail_dead_fs_list, and offset and size of its members. Taken in any context but NMI; nothing nests inside. */
extern spinlock_t guardrail_dead_fs_lock;

/* Functions of open files without a driver. */
extern const struct file_operations guardrail_dead_file_operations;

/**
 * guardrail_fs_note_free() - Free a note.
 * @note: The note, or NULL.
 *
 * Context: Process, with guardrail_fs_notes_lock held.
 */
void guardrail_fs_note_free(struct guardrail_fs_note *note);

/**
 * guardrail_dead_super() - Give a superblock functions that refuse.
 * @sb: The superblock.
 */
void guardrail_dead_super(struct super_block *sb);

/**
 * guardrail_dead_super_type() - Give a superblock a type of this module.
 * @sb: The superblock.
 *
 * Context: Process.
 * Return: False where the kernel's lock for that cannot be found.
 */
bool guardrail_dead_super_type(struct super_block *sb);

/**
 * guardrail_dead_inode() - Give an inode and its names functions that refuse.
 * @inode: The inode.
 *
 * Context: Any in which i_lock may be taken.
 */
void guardrail_dead_inode(struct inode *inode);

/**
 * guardrail_dead_evict() - Evict an inode without its driver.
 * @inode: The inode.
 *
 * Context: Process.
 */
void guardrail_dead_evict(struct inode *inode);

/**
 * guardrail_park_fs() - Take the file systems of a domain from its modules.
 * @domain: The domain.
 *
 * Context: Process, with teardown_lock held.
 * Return: How many there are, or an error where one cannot stay.
 */
int guardrail_park_fs(u32 domain);

/**
 * guardrail_park_files() - Give open and mapped files of a superblock functions that refuse.
 * @sb: The superblock.
 *
 * Context: Process.
 */
void guardrail_park_files(const struct super_block *sb);

/**
 * guardrail_keeps_allocation() - Test for an allocation that has an inode which stays.
 * @domain: Domain that owns it.
 * @start: Its begin.
 * @size: Its size in bytes.
 *
 * Context: Process.
 * Return: True where it must not be freed.
 */
bool guardrail_keeps_allocation(u32 domain, unsigned long start, unsigned long size);

/**
 * guardrail_find_same() - Find the name of an old file in the new file system.
 * @old: Name in the old file system.
 * @root: The new mount.
 * @path: Gets the name, which is held.
 *
 * Context: Process.
 * Return: 0, or an error where there is no such file.
 */
int guardrail_find_same(const struct dentry *old, struct vfsmount *root, struct path *path);

/**
 * guardrail_unlock_data() - Unlock folios that ended entries have left locked.
 * @dead: The file system.
 *
 * Context: Process.
 */
void guardrail_unlock_data(struct guardrail_dead_fs *dead);

/**
 * guardrail_copy_data() - Write cached data to the new file system where it differs.
 * @dead: The file system.
 * @root: The new mount.
 *
 * Context: Process.
 */
void guardrail_copy_data(struct guardrail_dead_fs *dead, struct vfsmount *root);

/**
 * guardrail_hand_over() - Make mounts, files and folders those of the new file system.
 * @dead: The file system.
 * @root: The new mount.
 *
 * Context: Process.
 * Return: 0 or an error.
 */
int guardrail_hand_over(struct guardrail_dead_fs *dead, struct vfsmount *root);

/**
 * guardrail_move_mounts() - Move mounts of the old file system to the new one.
 * @dead: The file system.
 * @root: The new mount.
 * @n: Its count goes up by the mounts that were moved.
 *
 * Context: Process.
 * Return: 0 or -ENOMEM.
 */
int guardrail_move_mounts(struct guardrail_dead_fs *dead, struct vfsmount *root, unsigned int *n);

/**
 * guardrail_inode_state() - Read the state of an inode.
 * @inode: The inode.
 *
 * Return: I_… bits.
 */
unsigned int guardrail_inode_state(struct inode *inode);

/**
 * guardrail_writers() - Count the threads that write to a file system.
 * @sb: The superblock.
 * @level: One of SB_FREEZE_… less 1.
 *
 * Return: Their number.
 */
int guardrail_writers(const struct super_block *sb, int level);

#endif /* GUARDRAIL_CLASSES_FS_RECOVERY_H */
