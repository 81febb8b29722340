/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What wrappers include: they make domains, translate what the kernel calls into messages, and what the driver emits into
 * calls of the kernel.
 */
#ifndef ACTIVE_WRAPPER_H
#define ACTIVE_WRAPPER_H

#include <linux/completion.h>
#include <linux/module.h>

#include "active.h"

/**
 * struct active_role - What a wrapper does with the messages of one protocol.
 * @protocol: Which.
 * @emitted: Called for each message that the driver emits, by box less the protocol's first `out` box.
 * @refused: Called for each message that the driver will never see, since its box was closed. May be NULL.
 *
 * Both run while the domain is busy, in whichever context it runs: often atomic, and with any lock held that a sender
 * holds. They must not sleep, nor take a lock that a sender of this domain holds, nor wait for the driver. active_send()
 * from them only queues.
 */
struct active_role {
	enum active_protocol_id protocol;
	void (*emitted)(struct active *a, unsigned int box, struct active_message *m, void *data);
	void (*refused)(struct active *a, struct active_message *m, void *data);
};

/**
 * struct active_domain_options - How a domain is made.
 * @name: Its name, in reports and debugfs. A second domain of the name gets a number after it.
 * @main: The driver's main function.
 * @protocols: The names of its protocols, active_program_MAIN.
 * @priv_size: Bytes of zeroed memory at a->priv, freed with the domain.
 * @owner: The driver's module; it stays loaded as long as a domain of it cannot be destroyed.
 */
struct active_domain_options {
	const char *name;
	void (*main)(struct active *a);
	const char *protocols;
	size_t priv_size;
	struct module *owner;
};

/**
 * active_create() - Makes a domain, whose driver does not run yet.
 * Context: May sleep.
 * Return: The domain, or an ERR_PTR().
 */
struct active *active_create(const struct active_domain_options *options);

/**
 * active_play() - Takes the kernel's part in a protocol of a domain. Before active_start().
 * @a: The domain.
 * @role: What to do with messages. It must last as long as the domain.
 * @data: Handed to the role's functions.
 */
void active_play(struct active *a, const struct active_role *role, void *data);

/* The role for a protocol that a domain has now, or NULL. */
const struct active_role *active_role_of(struct active *a, enum active_protocol_id protocol);

/* The data of the role for a protocol, or NULL. */
void *active_data(struct active *a, enum active_protocol_id protocol);

/**
 * active_start() - Runs the driver up to its first AWAIT.
 * Context: May sleep.
 */
void active_start(struct active *a);

/**
 * active_wait() - Waits until the driver's main function has returned, if it was started.
 * @a: The domain.
 *
 * If main does not return in time, the domain and the driver's module stay for ever.
 *
 * Context: May sleep.
 * Return: 0, or -ETIMEDOUT.
 */
int active_wait(struct active *a);

/**
 * active_destroy() - Frees a domain that has not been started, or for which active_wait() returned 0.
 * @a: The domain. Nothing may be sent to it any more.
 *
 * Context: May sleep.
 */
void active_destroy(struct active *a);

/**
 * active_send() - Sends a message to a domain.
 * @a: The domain.
 * @m: The message; box, pointer and number are set. It is the domain's until the driver has received and answered it.
 *
 * The driver often runs in here, and answers before this returns. It never sleeps unless the box is one that `sleeps` and
 * the caller may sleep.
 *
 * Context: Any but NMI.
 * Return: False where the box is full: the message stays with the caller. What is sent to a closed box, or to a driver
 * that has ended, goes to refused().
 */
bool active_send(struct active *a, struct active_message *m);

/**
 * active_allows() - Says whether the driver may receive a message in the present state of its protocol.
 *
 * The answer lasts only where the caller excludes what could change the state.
 */
bool active_allows(struct active *a, unsigned int box);

/**
 * active_refuse() - Closes boxes: messages in them, and those that will be sent, go to the role's refused().
 * Context: From emitted() or refused() of this domain.
 */
void active_refuse(struct active *a, u64 boxes);

/* Opens boxes again. Context: as for active_refuse(). */
void active_accept(struct active *a, u64 boxes);

/**
 * struct active_request - A message that its sender waits for the answer of. One at a time.
 * @message: The message.
 * @done: The answer has come.
 * @result: What it says.
 * @lost: A request was not answered in time, so that the message may still be the domain's.
 */
struct active_request {
	struct active_message message;
	struct completion done;
	long result;
	bool lost;
};

void active_request_init(struct active_request *r);

/**
 * active_ask() - Sends a request and waits for the answer.
 * @a: The domain.
 * @r: The request. It must last as long as the domain.
 * @box: The box.
 * @pointer: The payload.
 * @number: The payload.
 *
 * Context: May sleep. Others may not use @r at the same time.
 * Return: The answer, or -ETIMEDOUT where none came in time, -ENODEV where the driver has ended or the box is closed.
 */
long active_ask(struct active *a, struct active_request *r, unsigned int box, void *pointer, long number);

/* Answers a request; for emitted() and refused(). */
void active_answer(struct active_request *r, long result);

/**
 * active_kick_by() - Says what active_interrupt() does instead of scheduling a tasklet.
 * @kick: Called in any context; must lead to active_deliver() in a softirq.
 */
void active_kick_by(struct active *a, void (*kick)(struct active *a, void *data), void *data);

/**
 * active_interrupt_directly() - Lets active_interrupt() run the driver in the interrupt itself.
 *
 * For classes whose completions raise a softirq: one that another softirq raises may have to wait for a thread. All that
 * the roles of the domain do must be fit for hard interrupts. Before active_start().
 */
void active_interrupt_directly(struct active *a);

/**
 * active_deliver() - Sends IRQ_RAISED with all bits that active_interrupt() has gathered.
 * @a: The domain.
 * @bits: More bits.
 * @caller: What active_caller() returns while the driver runs in this call.
 *
 * Context: Any but NMI. In a hard interrupt the driver runs after it, unless active_interrupt_directly() was called.
 * Return: False if an earlier one has not been received yet, which then receives the bits.
 */
bool active_deliver(struct active *a, long bits, const void *caller);

/* For emitted() and refused(): the @caller of active_deliver() if the driver runs in that call, else NULL. */
const void *active_caller(struct active *a);

/* Has a domain's driver run in its thread only, or again in senders. The module parameter thread_only sets it for new domains. */
void active_thread_only(struct active *a, bool on);

/* How often a driver has broken a rule, 1 to 6. */
unsigned int active_violations(struct active *a, unsigned int rule);

/* The name of a domain. */
const char *active_name(struct active *a);

/* Module parameter: seconds after which an answer is late. */
extern unsigned int active_deadline;

#endif
