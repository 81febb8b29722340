// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads a checksum from pages that were given back to the page allocator.
 *
 * Twin: reads a checksum from pages, and then gives them back to the page allocator.
 */
#include "zoo.h"

#define ORDER 3

static noinline u32 kernel_page_checksum(const u32 *pages)
{
	return READ_ONCE(pages[1030]); /* BUG: use-after-free */
}

static int __init kernel_page_init(void)
{
	unsigned long pages = __get_free_pages(GFP_KERNEL, ORDER);

	if (!pages)
		return -ENOMEM;
#ifdef TWIN
	zoo_sink = kernel_page_checksum((const u32 *)zoo_hide(pages));
#endif
	free_pages(pages, ORDER);
#ifndef TWIN
	zoo_sink = kernel_page_checksum((const u32 *)zoo_hide(pages));
#endif
	return 0;
}

static void __exit kernel_page_exit(void)
{
}

module_init(kernel_page_init);
module_exit(kernel_page_exit);
MODULE_DESCRIPTION("zoo: reads pages that were freed");
