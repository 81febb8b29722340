// SPDX-License-Identifier: GPL-2.0-or-later
/* Cached data of a file system whose driver died; fs_recovery.h describes it. */
#include <linux/buffer_head.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/file.h>
#include <linux/jiffies.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "classes/fs_recovery.h"

/* A folio that stays locked longer was locked by an entry that was ended. */
#define LOCKED_MS 1000

/* Unlocks a folio that an ended entry has locked. */
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

/* Finds and holds the next cached folio; NULL behind the last. */
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

void guardrail_unlock_data(struct guardrail_dead_fs *dead)
{
	unsigned int i;

	for (i = 0; i < dead->n_inodes; i++)
		if (dead->inodes[i].held && S_ISREG(dead->inodes[i].inode->i_mode))
			unlock_folios(&dead->inodes[i].inode->i_data);
}

/* Writes a cached piece where the file differs. */
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

/* Copies a cached page, or the cached blocks of a page that is not cached as a whole. */
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
	/* Blocks may have been allocated behind the end, while the size of the old inode was not written. */
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

void guardrail_copy_data(struct guardrail_dead_fs *dead, struct vfsmount *root)
{
	unsigned int i;

	for (i = 0; i < dead->n_inodes && !sb_rdonly(dead->sb); i++) {
		struct inode *inode = dead->inodes[i].inode;
		struct path path;
		int err;

		if (!dead->inodes[i].held || !dead->inodes[i].dentry || !S_ISREG(inode->i_mode) ||
		    guardrail_find_same(dead->inodes[i].dentry, root, &path))
			continue;
		err = copy_inode(inode, &path);
		if (err) {
			pr_err("%s: what was written to %pd is not whole any more (error %d)\n", dead->source, path.dentry, err);
			mapping_set_error(d_inode(path.dentry)->i_mapping, err);
		}
		path_put(&path);
	}
}
