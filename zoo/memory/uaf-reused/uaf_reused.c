// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Frees a session and keeps using it after the next session got the same memory.
 *
 * Twin: uses the next session.
 */
#include "zoo.h"

#define SESSIONS 64

struct session {
	unsigned int id;
	unsigned int uses;
	unsigned char key[40];
};

static struct session *current_session;
static struct session *sessions[SESSIONS];

static noinline void uaf_reused_use(void)
{
	WRITE_ONCE(current_session->uses, 1); /* BUG: use-after-free */
}

/*
 * Stands for an address in comparisons. Were the addresses themselves compared, a compiler might use
 * the stale pointer for the new one.
 */
static noinline unsigned long uaf_reused_place(const struct session *s)
{
	return (unsigned long)s ^ zoo_hide(0x5aUL);
}

static struct session *uaf_reused_open(unsigned int id)
{
	struct session *s = kzalloc(sizeof(*s), GFP_KERNEL);

	if (s)
		s->id = id;
	return s;
}

static int __init uaf_reused_init(void)
{
	unsigned long old;
	unsigned int i;

	current_session = uaf_reused_open(0);
	if (!current_session)
		return -ENOMEM;
	old = uaf_reused_place(current_session);
	kfree(current_session);
	/* The allocator gives the slot that was freed last, mostly at once. */
	for (i = 0; i < SESSIONS; i++) {
		sessions[i] = uaf_reused_open(i + 1);
		if (uaf_reused_place(sessions[i]) == old) {
#ifdef TWIN
			WRITE_ONCE(current_session, sessions[i]);
#endif
			uaf_reused_use();
			break;
		}
	}
	return 0;
}

static void __exit uaf_reused_exit(void)
{
	unsigned int i;

	for (i = 0; i < SESSIONS; i++)
		kfree(sessions[i]);
}

module_init(uaf_reused_init);
module_exit(uaf_reused_exit);
MODULE_DESCRIPTION("zoo: use of an object after its memory became another one");
