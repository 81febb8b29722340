// SPDX-License-Identifier: GPL-2.0-or-later
/* Copies into the pages of scatterlists. */
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/uaccess.h>
#include <scsi/scsi_cmnd.h>

#include "border/custom.h"
#include "rights/object.h"

/* Bytes behind the begin of a command where its first list may begin: commands of drivers have memory of their own there. */
#define COMMAND_MOST (sizeof(struct scsi_cmnd) + 8192)

/* True for the list of a command that the domain has: the kernel made it, and only the kernel can change it. */
static bool is_of_command(u32 domain, const struct scatterlist *list)
{
	unsigned long end = (unsigned long)list, p = end - COMMAND_MOST;

	while (p < end) {
		unsigned long found = guardrail_find_object(domain, p, end - p);

		if (!found)
			return false;
		if (guardrail_check_object(domain, found, GUARDRAIL_TYPE_SCSI_CMND) && ((struct scsi_cmnd *)found)->sdb.table.sgl == list)
			return true;
		p = found + 1;
	}
	return false;
}

/* The address of the memory of a page; 0 for no page. */
static unsigned long memory_of(const struct scatterlist *entry)
{
	struct page *page = (struct page *)(entry->page_link & ~SG_PAGE_LINK_MASK);

	if ((unsigned long)page < VMEMMAP_START || !pfn_valid(page_to_pfn(page)))
		return 0;
	return (unsigned long)page_address(page);
}

/*
 * Writes to what lies behind a list, from byte @skip on: the bytes at @from, or zeros where that is NULL. Each entry is
 * read once, so that another thread cannot change it between check and use.
 */
static int fill(const struct guardrail_action *action, struct guardrail_call *call, const char *from, unsigned long n, unsigned long skip)
{
	unsigned long at = call->args[0], written = 0;
	unsigned int left = call->args[1];
	struct scatterlist entry;

	while (left && written < n) {
		unsigned long to, length;

		if (!is_kernel_range(at, sizeof(entry)) || copy_from_kernel_nofault(&entry, (void *)at, sizeof(entry))) {
			guardrail_refuse(action, call, "list of pages at", at, "nothing that can be read", "an entry of one");
			return 0;
		}
		if (entry.page_link & SG_CHAIN) {
			at = entry.page_link & ~SG_PAGE_LINK_MASK;
			continue;
		}
		left--;
		at += sizeof(entry);
		if (skip >= entry.length) {
			skip -= entry.length;
		} else {
			length = min(entry.length - skip, n - written);
			to = memory_of(&entry);
			if (!guardrail_require_write(action, call, to ? to + entry.offset + skip : 0, length))
				return 0;
			if (from)
				memcpy((void *)to + entry.offset + skip, from + written, length);
			else
				memset((void *)to + entry.offset + skip, 0, length);
			written += length;
			skip = 0;
		}
		if (entry.page_link & SG_END)
			break;
	}
	call->result = written;
	return 1;
}

/* sg_copy_from_buffer(list, entries, buffer, bytes); the value is how many to skip. */
GUARDRAIL_CUSTOM(sg_filled)
{
	if (is_of_command(action->domain, (struct scatterlist *)call->args[0]))
		return 0;
	return fill(action, call, (const char *)call->args[2], call->args[3], size_of(action, call));
}

/* sg_copy_buffer(list, entries, buffer, bytes, skipped, to the buffer) */
GUARDRAIL_CUSTOM(sg_copied)
{
	if ((bool)call->args[5]) {
		guardrail_require_write(action, call, call->args[2], call->args[3]);
		return 0;
	}
	if (is_of_command(action->domain, (struct scatterlist *)call->args[0]))
		return 0;
	return fill(action, call, (const char *)call->args[2], call->args[3], call->args[4]);
}

/* sg_zero_buffer(list, entries, bytes, skipped) */
GUARDRAIL_CUSTOM(sg_cleared)
{
	if (is_of_command(action->domain, (struct scatterlist *)call->args[0]))
		return 0;
	return fill(action, call, NULL, call->args[2], call->args[3]);
}
