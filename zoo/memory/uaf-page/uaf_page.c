// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the sequence number of a page after the page was given back.
 *
 * Twin: gives one of two references back and reads the page before the other goes.
 */
#include "zoo.h"

struct ring {
	u32 head;
	u32 tail;
	u32 seq;
};

static noinline void uaf_page_use(struct page *page)
{
	struct ring *ring = page_address(page);

	ring->head = 1;
	ring->tail = 2;
	ring->seq = 3;
#ifdef TWIN
	get_page(page);
#endif
	__free_page(page);
	zoo_sink = READ_ONCE(ring->seq); /* BUG: use-after-free */
#ifdef TWIN
	put_page(page);
#endif
}

static int __init uaf_page_init(void)
{
	struct page *page = alloc_page(GFP_KERNEL);

	if (!page)
		return -ENOMEM;
	uaf_page_use(page);
	return 0;
}

static void __exit uaf_page_exit(void)
{
}

module_init(uaf_page_init);
module_exit(uaf_page_exit);
MODULE_DESCRIPTION("zoo: reads a page it gave back");
