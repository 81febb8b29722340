// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * File systems: what calls do to rights, and checks of what drivers return. A driver may write the data of a buffer
 * until it releases the buffer. Inlined code takes further references, which no action sees. So a buffer that was
 * released as often as it was asked for stays writable for a while, until others are released. Meanwhile a reference
 * keeps its memory.
 */
#include <linux/buffer_head.h>
#include <linux/dcache.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "base/limits.h"
#include "base/symbols.h"
#include "border/custom.h"
#include "report/report.h"
#include "rights/memory.h"

#define BUFFERS 128

/**
 * struct buffer - A buffer that a domain has asked for.
 * @bh: The buffer, which is held; NULL where the place is free.
 * @data: The granted memory.
 * @size: Its size in bytes.
 * @released: When it was last released, counted in releases.
 * @domain: The domain.
 * @users: How often it was asked for, less how often it was released.
 */
static struct buffer {
	struct buffer_head *bh;
	unsigned long data;
	unsigned long size;
	unsigned long released;
	u32 domain;
	u32 users;
} buffers[BUFFERS];
static unsigned long releases;
/* Protects buffers and releases. Taken in any context but NMI. The locks of the rights room nest inside. */
static DEFINE_RAW_SPINLOCK(lock);

static void take_back(u32 domain, struct buffer_head *bh, unsigned long data, unsigned long size)
{
	guardrail_revoke(domain, data, size);
	guardrail_revoke(domain, (unsigned long)bh, sizeof(*bh));
}

static struct buffer *find(u32 domain, const struct buffer_head *bh)
{
	int i;

	for (i = 0; i < BUFFERS; i++)
		if (buffers[i].bh == bh && buffers[i].domain == domain)
			return &buffers[i];
	return NULL;
}

/* Finds a free place, or that of the buffer with the oldest release, which loses its rights. */
static struct buffer *place(void)
{
	struct buffer *oldest = NULL;
	int i;

	lockdep_assert_held(&lock);
	for (i = 0; i < BUFFERS; i++) {
		struct buffer *buffer = &buffers[i];

		if (!buffer->bh)
			return buffer;
		if (!buffer->users && (!oldest || buffer->released < oldest->released))
			oldest = buffer;
	}
	return oldest;
}

/* If buffers in use take all places, this buffer is writable until its first release. */
GUARDRAIL_CUSTOM(buffer_new)
{
	struct buffer_head *bh = (struct buffer_head *)object_of(action, call);
	unsigned long flags, data, size;
	struct buffer old = {}, *buffer;

	if (!bh)
		return 0;
	data = (unsigned long)bh->b_data;
	size = bh->b_size;
	raw_spin_lock_irqsave(&lock, flags);
	buffer = find(action->domain, bh);
	if (buffer) {
		buffer->users++;
	} else {
		buffer = place();
		if (buffer) {
			old = *buffer;
			get_bh(bh);
			*buffer = (struct buffer){
				.bh = bh, .data = data, .size = size, .domain = action->domain, .users = 1,
			};
		}
	}
	if (old.bh)
		take_back(old.domain, old.bh, old.data, old.size);
	raw_spin_unlock_irqrestore(&lock, flags);
	if (!buffer)
		guardrail_limit_reached(GUARDRAIL_LIMIT_BUFFERS);
	if (old.bh)
		put_bh(old.bh);
	return guardrail_grant_fresh(action->domain, data, size);
}

/* The driver is about to drop its reference. */
GUARDRAIL_CUSTOM(buffer_gone)
{
	struct buffer_head *bh = (struct buffer_head *)object_of(action, call);
	struct buffer *buffer;
	unsigned long flags;

	if (!bh)
		return 0;
	raw_spin_lock_irqsave(&lock, flags);
	buffer = find(action->domain, bh);
	if (buffer) {
		if (buffer->users)
			buffer->users--;
		buffer->released = ++releases;
	} else {
		take_back(action->domain, bh, (unsigned long)bh->b_data, bh->b_size);
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

/* Revokes all buffers of a device, or the released ones of all devices where it is NULL. */
static void forget(u32 domain, const struct block_device *bdev)
{
	unsigned long flags;
	int i;

	for (i = 0; i < BUFFERS; i++) {
		struct buffer *buffer = &buffers[i];
		struct buffer_head *bh = NULL;

		raw_spin_lock_irqsave(&lock, flags);
		if (buffer->bh && buffer->domain == domain && (bdev ? buffer->bh->b_bdev == bdev : !buffer->users)) {
			bh = buffer->bh;
			take_back(domain, bh, buffer->data, buffer->size);
			buffer->bh = NULL;
		}
		raw_spin_unlock_irqrestore(&lock, flags);
		if (bh)
			put_bh(bh);
	}
}

/* The file system is unmounted, or uses its device in another way: the pointer is a struct super_block. */
GUARDRAIL_CUSTOM(buffers_gone)
{
	struct super_block *sb = (struct super_block *)object_of(action, call);

	if (sb && sb->s_bdev)
		forget(action->domain, sb->s_bdev);
	return 0;
}

/* The mount may have failed. */
GUARDRAIL_CUSTOM(buffers_settle)
{
	forget(action->domain, NULL);
	return 0;
}

/* encode_fh(inode, handle, words, parent): as many words as there is room for. */
GUARDRAIL_CUSTOM(file_handle)
{
	unsigned long p = object_of(action, call);
	int *words = (int *)call->args[2];

	if (!p || !words || *words <= 0)
		return 0;
	return guardrail_lend(action->domain, p, *words * sizeof(u32));
}

/*
 * The kernel trusts objects that drivers pass and return to it. Some fields of these must match others, which shows
 * pointers to something else.
 */
static bool is_dentry(const struct dentry *dentry, int *count)
{
	struct super_block *sb, *above;
	struct dentry *parent;

	return is_kernel_range((unsigned long)dentry, sizeof(*dentry)) && !get_kernel_nofault(parent, &dentry->d_parent) &&
	       !get_kernel_nofault(sb, &dentry->d_sb) && !get_kernel_nofault(*count, &dentry->d_lockref.count) && sb &&
	       is_kernel_range((unsigned long)parent, sizeof(*parent)) && !get_kernel_nofault(above, &parent->d_sb) && above == sb;
}

static bool is_inode(struct inode *inode)
{
	struct inode *host;

	return is_kernel_range((unsigned long)inode, sizeof(*inode)) && !get_kernel_nofault(host, &inode->i_data.host) && host == inode;
}

/* True for a buffer with data that has a reference, or is attached to a page. */
static bool is_buffer(const struct buffer_head *bh, bool detached)
{
	unsigned long device, data, next;
	size_t size;
	int count;

	return is_kernel_range((unsigned long)bh, sizeof(*bh)) && !get_kernel_nofault(count, &bh->b_count.counter) &&
	       !get_kernel_nofault(device, (unsigned long *)&bh->b_bdev) && !get_kernel_nofault(data, (unsigned long *)&bh->b_data) &&
	       !get_kernel_nofault(size, &bh->b_size) && !get_kernel_nofault(next, (unsigned long *)&bh->b_this_page) &&
	       (count > 0 || is_kernel_range(next, sizeof(*bh))) && (detached || is_kernel_range(device, 1)) &&
	       is_kernel_range(data, size);
}

static int refuse(const struct guardrail_action *action, const struct guardrail_call *call, const char *what, unsigned long p,
		  const char *needs)
{
	guardrail_refuse(action, call, what, p, guardrail_held_at(p, action->domain), needs);
	return 0;
}

GUARDRAIL_CUSTOM(dentry)
{
	unsigned long p = object_of(action, call);
	int count;

	return !p || is_dentry((void *)p, &count) ? 0 : refuse(action, call, "use of", p, "object: a dentry");
}

/* An entry returns a reference to its caller. */
GUARDRAIL_CUSTOM(returned_dentry)
{
	unsigned long p = object_of(action, call);
	int count;

	return !p || (is_dentry((void *)p, &count) && count > 0) ? 0 : refuse(action, call, "return of", p, "object: a dentry in use");
}

/* The kernel makes pointers of results that are no error and greater than the action's value. */
GUARDRAIL_CUSTOM(returned_int)
{
	int number = call->result;
	unsigned long most;

	if (guardrail_applies(action, call) && guardrail_value(&action->pointer, call, &most) && (number > (int)most || number < -MAX_ERRNO))
		guardrail_refuse(action, call, "return of", (u32)number, "no error", most ? "an answer or an error" : "0 or an error");
	return 0;
}

/* The function created a file, so its name must have an inode. */
GUARDRAIL_CUSTOM(created)
{
	struct dentry *dentry = (struct dentry *)object_of(action, call);

	if (dentry && !is_inode(d_inode(dentry)))
		guardrail_refuse(action, call, "return without an inode in", (unsigned long)dentry, "none", "one");
	return 0;
}

GUARDRAIL_CUSTOM(inode)
{
	unsigned long p = object_of(action, call);

	return !p || is_inode((void *)p) ? 0 : refuse(action, call, "use of", p, "object: an inode");
}

GUARDRAIL_CUSTOM(buffer)
{
	unsigned long p = object_of(action, call);

	return !p || is_buffer((void *)p, false) ? 0 : refuse(action, call, "use of", p, "object: a buffer in use");
}

/* The same where a buffer may have lost its device, as the buffers of truncated pages have. */
GUARDRAIL_CUSTOM(buffer_there)
{
	unsigned long p = object_of(action, call);

	return !p || is_buffer((void *)p, true) ? 0 : refuse(action, call, "use of", p, "object: a buffer in use");
}

/* The kernel calls functions of the context without a check for NULL. */
GUARDRAIL_CUSTOM(fs_context)
{
	struct fs_context *fc = (struct fs_context *)object_of(action, call);
	int (*get_tree)(struct fs_context *fc);

	if (fc && (!is_kernel_range((unsigned long)fc->ops, sizeof(*fc->ops)) || get_kernel_nofault(get_tree, &fc->ops->get_tree) ||
		   !guardrail_is_code((unsigned long)get_tree)))
		guardrail_refuse(action, call, "return without functions in", (unsigned long)fc, "none", "those of a file system");
	return 0;
}
