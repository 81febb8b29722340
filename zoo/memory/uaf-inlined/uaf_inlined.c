// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A session is closed and then its state is read, by a helper that the compiler inlines twice.
 *
 * Twin: the state is read first.
 */
#include "zoo.h"

/* Of a size that the rest of the kernel rarely asks for, so that nobody takes the freed memory over. */
struct session {
	unsigned int state;
	u8 payload[5000];
};

static __always_inline unsigned int session_state(const struct session *s)
{
	return READ_ONCE(s->state); /* BUG: use-after-free */
}

static __always_inline void session_report(const struct session *s)
{
	zoo_sink = session_state(s);
}

static noinline void uaf_inlined_close(struct session *s)
{
#ifdef TWIN
	session_report(s);
	kfree(s);
#else
	kfree(s);
	session_report(s);
#endif
}

static int __init uaf_inlined_init(void)
{
	struct session *s = kmalloc(sizeof(*s), GFP_KERNEL);

	if (!s)
		return -ENOMEM;
	s->state = 1;
	uaf_inlined_close(s);
	return 0;
}

static void __exit uaf_inlined_exit(void)
{
}

module_init(uaf_inlined_init);
module_exit(uaf_inlined_exit);
MODULE_DESCRIPTION("zoo: inlined code reads an object that was freed");
