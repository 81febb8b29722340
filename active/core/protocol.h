/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The tables of protocols.c. */
#ifndef ACTIVE_CORE_PROTOCOL_H
#define ACTIVE_CORE_PROTOCOL_H

#include <linux/types.h>

#include "active.h"

/* No transition. */
#define ACTIVE_NOWHERE 255
/* The first box of messages of the driver. */
#define ACTIVE_FIRST_OUT 64

enum {
	/* If the driver waits for all messages that the state enables, one will come. */
	ACTIVE_STATE_FAIR = 1,
	/* The driver must leave the state. */
	ACTIVE_STATE_OWED = 2,
	/* The driver may end. */
	ACTIVE_STATE_FINAL = 4,
};

enum {
	/* The driver may sleep while it handles the message. */
	ACTIVE_BOX_SLEEPS = 1,
	/* The message goes to the head of the queue. */
	ACTIVE_BOX_HEAD = 2,
};

/**
 * struct active_state - A state of a protocol.
 * @name: Its name.
 * @flags: ACTIVE_STATE_*.
 * @enabled: The boxes of messages that the driver can receive in it.
 */
struct active_state {
	const char *name;
	u32 flags;
	u64 enabled;
};

/**
 * struct active_box_info - A box.
 * @name: The message's name.
 * @flags: ACTIVE_BOX_*.
 * @room: How many messages it holds.
 */
struct active_box_info {
	const char *name;
	u16 flags;
	u16 room;
};

/**
 * struct active_protocol - A protocol.
 * @name: Its name.
 * @states: Its states.
 * @state_count: Their number.
 * @initial: The one that it begins in.
 * @ins: Its messages to the driver, whose boxes are numbered from @first_in on.
 * @outs: Its messages to the kernel, whose boxes are numbered from @first_out on.
 * @next: By state, and by message in the order of @ins and @outs: the next state, or ACTIVE_NOWHERE.
 */
struct active_protocol {
	const char *name;
	const struct active_state *states;
	u8 state_count, initial;
	const struct active_box_info *ins;
	u8 first_in, in_count;
	const struct active_box_info *outs;
	u8 first_out, out_count;
	const u8 *next;
};

extern const struct active_protocol active_protocols[ACTIVE_PROTOCOLS];

#endif
