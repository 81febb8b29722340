/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Objects on stacks of guarded modules that the kernel has (frames.c). */
#ifndef GUARDRAIL_FRAMES_H
#define GUARDRAIL_FRAMES_H

#include <linux/list.h>
#include <linux/wait.h>

#include "internal.h"

enum on_stack { ON_WORK, ON_TIMER, ON_WAIT, ON_LIST };

struct guardrail_noted {
	unsigned long p;
	struct wait_queue_head *queue;	/* that an entry of a wait queue is in */
	struct list_head between;	/* neighbours of an entry of a list when it was put there */
	unsigned long ip;	/* who handed it over */
	enum on_stack kind;
	u32 domain;
};

static inline bool guardrail_any_frames(void)
{
	return atomic_read(&guardrail_frames);
}

/* What is known of any object that a call hands over. */
#define NOTED(of, ...)									\
	(&(struct guardrail_noted){ .p = (of), .ip = frame->caller, .domain = action->domain, __VA_ARGS__ })
/* An object is handed to the kernel: noted, and true, where it lies on the current stack. */
bool guardrail_frame_note(const struct guardrail_noted *what);
/* Reads the links of what may be a node of a list; false where nothing can be read. */
bool guardrail_links_of(const struct list_head *node, struct list_head *links);
bool guardrail_frame_is_noted(unsigned long p, enum on_stack kind);
/* It is the driver's again, or none any more. Called by whoever knows. */
void guardrail_frame_forget(unsigned long p, enum on_stack kind);
/* The kernel has something of [addr, addr + n) on the current task's stack: what that is, else NULL. */
const char *guardrail_frame_use(unsigned long addr, unsigned long n);
/* The frames in [from, to) of the current stack are given up: what the kernel has of them is taken from it. */
void guardrail_frames_end(unsigned long from, unsigned long to);
/* All frames below a record are gone. */
void guardrail_frames_left(const void *record);
/* The domain's modules are gone. */
void guardrail_frames_forget(u32 domain);

int __init guardrail_frames_init(void);
void guardrail_frames_exit(void);

/* report.c: a function returns with it. */
void guardrail_report_frame(const struct guardrail_noted *what, const char *name, u32 domain, unsigned long ip);

#endif /* GUARDRAIL_FRAMES_H */
