/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Objects on a driver's stack that the kernel uses: queued work, armed timers, entries of wait
 * queues and of lists, registered devices. Each is noted when the driver passes it to the kernel.
 */
#ifndef GUARDRAIL_DOMAIN_FRAMES_H
#define GUARDRAIL_DOMAIN_FRAMES_H

#include <linux/list.h>
#include <linux/wait.h>

#include "base/kernel.h"

/**
 * enum guardrail_on_stack - Kinds of objects on stacks.
 * @ON_WORK: Work.
 * @ON_TIMER: A timer.
 * @ON_WAIT: An entry of a wait queue.
 * @ON_LIST: An entry of a list.
 * @ON_MISC: A registered character device.
 */
enum guardrail_on_stack { ON_WORK, ON_TIMER, ON_WAIT, ON_LIST, ON_MISC };

/**
 * struct guardrail_noted - An object on a stack that the kernel was given.
 * @p: Its address.
 * @queue: Wait queue that an entry of one is in.
 * @between: Neighbors of a list's entry when it was inserted.
 * @ip: Address of the code that passed it to the kernel.
 * @kind: Kind of object.
 * @domain: Domain of the driver.
 */
struct guardrail_noted {
	unsigned long p;
	struct wait_queue_head *queue;
	struct list_head between;
	unsigned long ip;
	enum guardrail_on_stack kind;
	u32 domain;
};

/**
 * guardrail_any_frames() - Test whether any object is noted.
 *
 * Return: True where there is one.
 */
static inline bool guardrail_any_frames(void)
{
	return atomic_read(&guardrail_frames);
}

/**
 * guardrail_frame_note() - Note an object that is passed to the kernel.
 * @what: The object.
 *
 * Context: Any but NMI.
 * Return: True where it lies on the current stack; others are not noted.
 */
bool guardrail_frame_note(const struct guardrail_noted *what);

/**
 * guardrail_frame_is_noted() - Test for a noted object.
 * @p: Its address.
 * @kind: Kind of object.
 *
 * Context: Any but NMI.
 * Return: True where it is noted.
 */
bool guardrail_frame_is_noted(unsigned long p, enum guardrail_on_stack kind);

/**
 * guardrail_frame_forget() - Forget an object that the kernel does not use any more.
 * @p: Its address.
 * @kind: Kind of object.
 *
 * Context: Any but NMI.
 */
void guardrail_frame_forget(unsigned long p, enum guardrail_on_stack kind);

/**
 * guardrail_frame_use() - Find what the kernel uses on the current stack.
 * @addr: First byte of a range.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: Words for an object in the range, or NULL.
 */
const char *guardrail_frame_use(unsigned long addr, unsigned long n);

/**
 * guardrail_frames_end() - Take back what the kernel uses of a part of the current stack that ends.
 * @from: First address.
 * @to: Address behind the last, on the same stack.
 *
 * Context: That of the entry.
 */
void guardrail_frames_end(unsigned long from, unsigned long to);

/**
 * guardrail_frames_left() - Forget the objects below a record, whose entry returns.
 * @record: Address of the record.
 *
 * Context: That of the entry.
 */
void guardrail_frames_left(const void *record);

/**
 * guardrail_frames_forget() - Forget the objects of a domain whose modules are unloaded.
 * @domain: The domain.
 *
 * Context: Any but NMI.
 */
void guardrail_frames_forget(u32 domain);

/**
 * guardrail_frames_init() - Set up the table of objects.
 *
 * Return: 0, or -ENOMEM.
 */
int __init guardrail_frames_init(void);

/**
 * guardrail_frames_exit() - Free the table of objects.
 */
void guardrail_frames_exit(void);

#endif /* GUARDRAIL_DOMAIN_FRAMES_H */
