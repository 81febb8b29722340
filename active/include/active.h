/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a driver that talks to the kernel by messages includes.
 *
 * Such a driver is one function that runs on a stack of its own, waits for messages with AWAIT and answers with EMIT.
 * It is never entered twice at a time. The protocols in knowledge/CLASS/protocol.chart say which message may be sent when.
 */
#ifndef ACTIVE_H
#define ACTIVE_H

#include <linux/interrupt.h>
#include <linux/sched.h>
#include <linux/stringify.h>
#include <linux/types.h>

/* A frame that is left in another thread than it was entered in would find the canary of the wrong thread. */
#if defined(__SSP__) || defined(__SSP_STRONG__) || defined(__SSP_ALL__)
#error "compile sources that include active.h with -fno-stack-protector"
#endif

/* The compiler keeps calls apart, so that each has a constant box or mask; of use to what analyzes drivers. */
#if __has_attribute(nomerge)
#define ACTIVE_NOMERGE __attribute__((nomerge))
#else
#define ACTIVE_NOMERGE
#endif

/**
 * struct active_message - A message. Its memory belongs to the sender until the receiver is done with it.
 * @next: The next message of a queue.
 * @box: The box, one of enum active_box.
 * @flags: The core's.
 * @pointer: The payload that is a pointer.
 * @number: The payload that is a number.
 *
 * It fits into the control block of a packet, skb->cb.
 */
struct active_message {
	struct active_message *next;
	u16 box;
	u16 flags;
	void *pointer;
	long number;
};

/* The boxes, and what reads and writes payloads. */
#include "protocols.h"

/**
 * struct active - A domain, as its driver sees it.
 * @message: The message that active_await() received last; it belongs to the driver until the protocol says otherwise.
 * @priv: The driver's own.
 */
struct active {
	struct active_message *message;
	void *priv;
};

/**
 * active_await() - Waits for a message in one of some boxes.
 * @a: The domain.
 * @boxes: A bit for each box.
 *
 * A message is received as soon as the state of its protocol allows it; others stay in their boxes, in order.
 *
 * Context: The driver's main function, or what that calls. Nothing that other threads need is held.
 * Return: The box. The message is @a->message.
 */
int active_await(struct active *a, u64 boxes) ACTIVE_NOMERGE;

/**
 * active_emit() - Sends a message to the kernel.
 * @a: The domain.
 * @box: The box.
 * @m: What carries the payload; may be NULL without a payload. It is the driver's again on return.
 *
 * It allocates nothing, never fails, never sleeps, and never enters the driver.
 *
 * Context: As for active_await().
 */
void active_emit(struct active *a, unsigned int box, struct active_message *m) ACTIVE_NOMERGE;

/*
 * The thread that runs the driver may be another one after each AWAIT. The compiler does not know that, and would read the
 * kernel's `current` but once. Inline functions of the kernel that use it must not be called on both sides of an AWAIT.
 */
struct task_struct *active_current(void);
#undef current
#define current active_current()

#define ACTIVE_BIT(box) (1ULL << (box))
#define ACTIVE_BOXES_1(b) ACTIVE_BIT(b)
#define ACTIVE_BOXES_2(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_1(__VA_ARGS__))
#define ACTIVE_BOXES_3(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_2(__VA_ARGS__))
#define ACTIVE_BOXES_4(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_3(__VA_ARGS__))
#define ACTIVE_BOXES_5(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_4(__VA_ARGS__))
#define ACTIVE_BOXES_6(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_5(__VA_ARGS__))
#define ACTIVE_BOXES_7(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_6(__VA_ARGS__))
#define ACTIVE_BOXES_8(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_7(__VA_ARGS__))
#define ACTIVE_BOXES_9(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_8(__VA_ARGS__))
#define ACTIVE_BOXES_10(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_9(__VA_ARGS__))
#define ACTIVE_BOXES_11(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_10(__VA_ARGS__))
#define ACTIVE_BOXES_12(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_11(__VA_ARGS__))
#define ACTIVE_BOXES_13(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_12(__VA_ARGS__))
#define ACTIVE_BOXES_14(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_13(__VA_ARGS__))
#define ACTIVE_BOXES_15(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_14(__VA_ARGS__))
#define ACTIVE_BOXES_16(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_15(__VA_ARGS__))
#define ACTIVE_BOXES_17(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_16(__VA_ARGS__))
#define ACTIVE_BOXES_18(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_17(__VA_ARGS__))
#define ACTIVE_BOXES_19(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_18(__VA_ARGS__))
#define ACTIVE_BOXES_20(b, ...) (ACTIVE_BIT(b) | ACTIVE_BOXES_19(__VA_ARGS__))
#define ACTIVE_COUNT(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19, a20, n, ...) n
#define ACTIVE_JOIN(n) ACTIVE_BOXES_##n
#define ACTIVE_CHOOSE(n) ACTIVE_JOIN(n)
/* The bits of up to 20 boxes, a constant. */
#define ACTIVE_BOXES(...) \
	ACTIVE_CHOOSE(ACTIVE_COUNT(__VA_ARGS__, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0))(__VA_ARGS__)

/* Waits for one of the boxes that are listed: AWAIT(a, PCI_SUSPEND, PCI_REMOVE). */
#define AWAIT(a, ...) active_await((a), ACTIVE_BOXES(__VA_ARGS__))

#define ACTIVE_EMIT_2(a, box) active_emit((a), (box), NULL)
#define ACTIVE_EMIT_3(a, box, m) active_emit((a), (box), (m))
#define ACTIVE_THIRD(a, box, m, n, ...) n
/* Sends a message: EMIT(a, PCI_SUSPENDED), or with a payload EMIT(a, PCI_PROBE_FAILED, &m). */
#define EMIT(...) ACTIVE_THIRD(__VA_ARGS__, ACTIVE_EMIT_3, ACTIVE_EMIT_2)(__VA_ARGS__)

/**
 * active_interrupt() - Tells the domain of an interrupt; for top halves.
 * @a: The domain.
 * @bits: What the device said. Bits that the driver has not seen yet are joined.
 *
 * The driver receives IRQ_RAISED, not in the interrupt itself but in a softirq after it.
 *
 * Context: Any.
 */
void active_interrupt(struct active *a, long bits);

/**
 * active_doorbell() - Writes a register when the domain is left, rather than at once.
 * @a: The domain.
 * @doorbell: Writes it. Runs outside of the domain, as a top half does, in the context of active_send().
 * @data: Handed to it.
 *
 * For a write that makes the device interrupt before the driver waits again: another CPU that takes the interrupt would find
 * the domain busy. What is rung several times before the domain is left is rung once.
 *
 * Context: As for active_emit(). It is called at once where the thread can be preempted. So what it touches must last
 * for a grace period of RCU after the driver has last called this; unregistering a network device waits for one.
 */
void active_doorbell(struct active *a, void (*doorbell)(void *data), void *data);

/**
 * ACTIVE_PROGRAM() - Names the main function of a driver, and the protocols that it follows.
 * @main: A function, static void NAME(struct active *a).
 * @protocols: Their names with spaces between, a string.
 */
#define ACTIVE_PROGRAM(main, protocols) \
	static const char active_program_##main[] __used __section(".guardrail.active") = protocols

#endif
