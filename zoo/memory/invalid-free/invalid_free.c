// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Steps over a header while parsing and then frees the pointer it stepped with.
 *
 * Twin: steps over a header while parsing, and back before it frees.
 */
#include "zoo.h"

#define HEADER 64
/* Beyond the slab caches, which such a free would corrupt. */
#define SIZE 20000

static noinline u8 *invalid_free_skip(u8 *p)
{
	p[0] = 1;
	p[HEADER] = 2;
	return zoo_hide(p + HEADER);
}

static noinline void invalid_free_parse(void)
{
	u8 *p = kmalloc(SIZE, GFP_KERNEL);

	if (!p)
		return;
	p = invalid_free_skip(p);
	zoo_sink = READ_ONCE(*p);
#ifdef TWIN
	kfree(p - HEADER);
#else
	kfree(p); /* BUG: invalid-free */
#endif
}

static int __init invalid_free_init(void)
{
	invalid_free_parse();
	return 0;
}

static void __exit invalid_free_exit(void)
{
}

module_init(invalid_free_init);
module_exit(invalid_free_exit);
MODULE_DESCRIPTION("zoo: frees a pointer into the middle of its object");
