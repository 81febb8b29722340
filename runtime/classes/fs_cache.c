// SPDX-License-Identifier: GPL-2.0-or-later
/* Stores to the page cache of file systems; classes/fs_cache.h describes which are allowed. */
#include <linux/blkdev.h>
#include <linux/buffer_head.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/uaccess.h>

#include "base/address.h"
#include "classes/fs_cache.h"
#include "classes/fs_recovery.h"

/* The most buffers of a page. */
#define MOST_BUFFERS 64

static bool is_own_type(u32 domain, const void *type)
{
	int i;

	for (i = 0; type && i < GUARDRAIL_FS_TYPES; i++)
		if (READ_ONCE(guardrail_fs_types[domain][i]) == type)
			return true;
	return false;
}

static bool is_own_sb(u32 domain, const struct super_block *sb)
{
	return sb && is_own_type(domain, pointer_at(&sb->s_type));
}

/* A device is held by the file system that is mounted from it, or by its type. */
static bool is_own_device(u32 domain, const struct block_device *bdev)
{
	const void *holder = bdev ? pointer_at(&bdev->bd_holder) : NULL;

	return holder && (is_own_type(domain, holder) || is_own_sb(domain, holder));
}

static bool is_own_host(u32 domain, struct inode *host)
{
	const struct super_block *sb = host ? pointer_at(&host->i_sb) : NULL;
	umode_t mode;

	if (!sb)
		return false;
	if (is_own_sb(domain, sb))
		return true;
	return !get_kernel_nofault(mode, &host->i_mode) && S_ISBLK(mode) && is_own_device(domain, I_BDEV(host));
}

/* True for a page that caches a file or a device of the domain. */
static bool is_own_page(u32 domain, struct page *page)
{
	struct folio *folio = page_folio(page);
	const struct address_space *mapping;

	if (folio_test_slab(folio))
		return false;
	mapping = pointer_at(&folio->mapping);
	/* The low bits say that a page caches no file. */
	if (!mapping || (unsigned long)mapping & 3)
		return false;
	return is_own_host(domain, pointer_at(&mapping->host));
}

/* The page that a field of struct page belongs to, or NULL. */
static struct page *page_of_field(unsigned long addr)
{
	struct page *page = (struct page *)(VMEMMAP_START + (addr - VMEMMAP_START) / sizeof(struct page) * sizeof(struct page));

	if (addr < VMEMMAP_START || addr - VMEMMAP_START >= (1UL << MAX_PHYSMEM_BITS) / PAGE_SIZE * sizeof(struct page))
		return NULL;
	return pfn_valid(page_to_pfn(page)) ? page : NULL;
}

/* Fields of pages and of attached buffers that inlined functions write. */
static const struct guardrail_field page_fields[] = {
	{ offsetof(struct page, flags), sizeof_field(struct page, flags) },
	{ offsetof(struct page, _refcount), sizeof_field(struct page, _refcount) },
};
static const struct guardrail_field buffer_fields[] = {
	{ offsetof(struct buffer_head, b_state), sizeof_field(struct buffer_head, b_state) },
	{ offsetof(struct buffer_head, b_blocknr), sizeof_field(struct buffer_head, b_blocknr) },
	{ offsetof(struct buffer_head, b_size), sizeof_field(struct buffer_head, b_size) },
	{ offsetof(struct buffer_head, b_bdev), sizeof_field(struct buffer_head, b_bdev) },
#ifdef BUFFER_HAS_END_IO
	{ offsetof(struct buffer_head, b_end_io), sizeof_field(struct buffer_head, b_end_io) },
#endif
	{ offsetof(struct buffer_head, b_private), sizeof_field(struct buffer_head, b_private) },
	{ offsetof(struct buffer_head, b_assoc_buffers), sizeof_field(struct buffer_head, b_assoc_buffers) },
	{ offsetof(struct buffer_head, b_count), sizeof_field(struct buffer_head, b_count) },
};

static bool lies_in(unsigned long offset, unsigned long n, const struct guardrail_field *field)
{
	return offset >= field->offset && offset + n <= field->offset + field->size;
}

/* True where a buffer is attached to a page of the domain: the page leads to it. */
static bool is_own_buffer(u32 domain, const struct buffer_head *bh)
{
	struct page *page = pointer_at(&bh->b_page);
	const struct buffer_head *at;
	int i;

	if (!page || (unsigned long)page % sizeof(void *) || page_of_field((unsigned long)page) != page || !is_own_page(domain, page))
		return false;
	at = (const void *)page_folio(page)->private;
	for (i = 0; at && i < MOST_BUFFERS; i++, at = pointer_at(&at->b_this_page))
		if (at == bh)
			return true;
	return false;
}

static bool is_buffer_field(u32 domain, unsigned long addr, unsigned long n)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(buffer_fields); i++) {
		const struct guardrail_field *field = &buffer_fields[i];
		unsigned long bh = addr & ~7UL, within;

		/* A store to a part of a field: the field begins in this word or in one before. */
		for (within = 0; within < field->size; within += 8)
			if (lies_in(addr - (bh - within - (field->offset & ~7UL)), n, field) &&
			    is_own_buffer(domain, (const struct buffer_head *)(bh - within - (field->offset & ~7UL))))
				return true;
	}
	return false;
}

static bool is_page_field(u32 domain, struct page *page, unsigned long addr, unsigned long n)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(page_fields); i++)
		if (lies_in(addr - (unsigned long)page, n, &page_fields[i]))
			return is_own_page(domain, page);
	return false;
}

/* Inlined functions count who writes to a file system, in variables of each CPU. */
static bool is_writer_count(u32 domain, unsigned long addr, unsigned long n)
{
	const struct file_system_type *type;
	const struct super_block *sb;
	struct hlist_node *node;
	int i, level, most = 64;

	if (n != sizeof(unsigned int))
		return false;
	for (i = 0; i < GUARDRAIL_FS_TYPES; i++) {
		type = READ_ONCE(guardrail_fs_types[domain][i]);
		node = type ? pointer_at(&type->fs_supers.first) : NULL;
		for (; node && most-- > 0; node = pointer_at(&node->next)) {
			sb = hlist_entry(node, struct super_block, s_instances);
			for (level = 0; level < SB_FREEZE_LEVELS; level++) {
				unsigned int __percpu *count = pointer_at(&sb->s_writers.rw_sem[level].read_count);

				if (count && addr == (unsigned long)raw_cpu_ptr(count))
					return true;
			}
		}
	}
	return false;
}

bool guardrail_is_fs_cache(u32 domain, unsigned long addr, unsigned long n)
{
	struct page *page;
	bool own = false;

	if (!(READ_ONCE(guardrail_fs_domains) & BIT(domain)) || addr < KERNEL_HALF || !n)
		return false;
	/* Superblocks and inodes are freed after a grace period. */
	rcu_read_lock();
	page = page_of_field(addr);
	if (page) {
		own = is_page_field(domain, page, addr, n);
	} else if (virt_addr_valid(addr) && virt_addr_valid(addr + n - 1)) {
		page = virt_to_page(addr);
		if (folio_test_slab(page_folio(page)))
			own = is_buffer_field(domain, addr, n);
		else
			own = is_own_page(domain, page) && page_folio(virt_to_page(addr + n - 1)) == page_folio(page);
	} else {
		own = is_writer_count(domain, addr, n);
	}
	rcu_read_unlock();
	return own;
}
