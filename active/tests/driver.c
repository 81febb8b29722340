// SPDX-License-Identifier: GPL-2.0-or-later
/* The driver of the tests, and the kernel's part in its protocols. */
#include <linux/delay.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "test.h"

struct active_message test_messages[1100];
static DEFINE_MUTEX(mutex);

static void note(struct test *t, struct active *a, unsigned int box)
{
	t->handler = current;
	t->in_hardirq |= in_hardirq();
	t->early |= t->depth > 0;
	if (t->noted < NOTES)
		t->notes[t->noted++] = box | a->message->number << 8;
}

static long sleep_a_while(void)
{
	void *memory;

	mutex_lock(&mutex);
	usleep_range(500, 1000);
	memory = kmalloc(8192, GFP_KERNEL);
	mutex_unlock(&mutex);
	kfree(memory);
	return memory ? 0 : -ENOMEM;
}

/* Hardened copies look at what the memory is. */
static noinline long copy(u64 to)
{
	char text[64];

	memset(text, 7, sizeof(text));
	OPTIMIZER_HIDE_VAR(to);
	return copy_to_user((void __user *)to, text, sizeof(text)) ? -EFAULT : 0;
}

/* Uses 256 bytes of stack for each level. */
static noinline long descend(u64 levels)
{
	char text[256];
	long deeper;

	memset(text, (int)levels, sizeof(text));
	barrier_data(text);
	deeper = levels ? descend(levels - 1) : 0;
	barrier_data(text);
	return deeper + text[levels % sizeof(text)];
}

static void hold(struct test *t)
{
	complete(&t->held);
	wait_for_completion(&t->release);
}

static void change(struct active *a, struct test *t)
{
	const struct active_ethernet_change *change = ethernet_change_change(a->message);
	struct active_message m = {}, timer = { .number = change->value };
	u32 kind = change->kind;

	switch (kind) {
	case TEST_SLEEP:
		m.number = sleep_a_while();
		break;
	case TEST_HOLD:
		hold(t);
		break;
	case TEST_TIMER:
		EMIT(a, TIMER_START, &timer);
		break;
	case TEST_CANCEL:
		EMIT(a, TIMER_CANCEL);
		break;
	case TEST_COPY:
		m.number = copy(change->value);
		break;
	case TEST_WARN:
		WARN(1, "guardrail_active_test: as asked\n");
		break;
	case TEST_OVERFLOW:
		m.number = descend(change->value);
		break;
	case TEST_FORBIDDEN:
		EMIT(a, ETHERNET_OPENED);
		EMIT(a, PCI_RESUMED);
		break;
	}
	EMIT(a, ETHERNET_CHANGED, &m);
	if (kind == TEST_FULL)
		EMIT(a, ETHERNET_QUEUE_STOP);
	if (kind == TEST_WAKE)
		EMIT(a, ETHERNET_QUEUE_WAKE);
	if (kind == TEST_NARROW)
		AWAIT(a, ETHERNET_RX_MODE);
}

/* What is sent here is handled at once, if the domain has been left. */
static void rung(void *data)
{
	struct test *t = data;
	unsigned int done = t->done;

	t->rung++;
	test_packet(t, 0);
	t->rung_idle += t->done == done + 1;
}

static void leave(struct active *a)
{
	EMIT(a, ETHERNET_UNREGISTER);
	while (AWAIT(a, ETHERNET_STOP, ETHERNET_UNREGISTERED) == ETHERNET_STOP)
		EMIT(a, ETHERNET_STOPPED);
}

static void test_main(struct active *a)
{
	struct test *t = a->priv;

	AWAIT(a, PCI_PROBE);
	EMIT(a, ETHERNET_REGISTER);
	AWAIT(a, ETHERNET_REGISTERED, ETHERNET_REGISTER_FAILED);
	EMIT(a, PCI_PROBED);
	for (;;) {
		unsigned int box = AWAIT(a, ETHERNET_XMIT, IRQ_RAISED, ETHERNET_OPEN, ETHERNET_STOP, ETHERNET_CHANGE, ETHERNET_RX_MODE,
					 ETHERNET_STATISTICS, ETHERNET_TIMEOUT, TIMER_EXPIRED, PCI_SUSPEND, PCI_ERROR, PCI_SHUTDOWN,
					 PCI_REMOVE, PCI_UNPLUG);

		if (t->noting)
			note(t, a, box);
		switch (box) {
		case ETHERNET_XMIT:
			if (a->message->number == TEST_RINGS)
				active_doorbell(a, rung, t);
			EMIT(a, ETHERNET_TX_DONE, a->message);
			break;
		case IRQ_RAISED:
			t->received = ktime_get_ns();
			EMIT(a, IRQ_SERVICED);
			complete(&t->raised);
			break;
		case ETHERNET_OPEN:
			EMIT(a, IRQ_ENABLE);
			EMIT(a, ETHERNET_OPENED);
			break;
		case ETHERNET_STOP:
			EMIT(a, IRQ_DISABLE);
			EMIT(a, ETHERNET_STOPPED);
			break;
		case ETHERNET_CHANGE:
			change(a, t);
			break;
		case PCI_REMOVE:
			leave(a);
			EMIT(a, PCI_REMOVED);
			return;
		case ETHERNET_TIMEOUT:
			EMIT(a, ETHERNET_RESTARTED);
			break;
		/* The tests send no other message of the protocol pci; ending here would break rule 5, and be seen. */
		case PCI_SUSPEND:
		case PCI_ERROR:
		case PCI_SHUTDOWN:
		case PCI_UNPLUG:
			return;
		}
	}
}
ACTIVE_PROGRAM(test_main, "pci ethernet irq timer");

/* --- The kernel's part. */

static struct active_message registered = { .box = ETHERNET_REGISTERED }, unregistered = { .box = ETHERNET_UNREGISTERED };

static void net_emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct test *t = data;
	unsigned int n;

	t->depth++;
	switch (box) {
	case ETHERNET_REGISTER:
		active_send(a, &registered);
		break;
	case ETHERNET_UNREGISTER:
		active_refuse(a, ACTIVE_BOXES(ETHERNET_OPEN, ETHERNET_CHANGE, ETHERNET_XMIT));
		active_send(a, &unregistered);
		break;
	case ETHERNET_TX_DONE:
		t->done++;
		break;
	case ETHERNET_CHANGED:
		for (n = 0; n < t->send_from_emitted; n++)
			test_packet(t, n);
		t->send_from_emitted = 0;
		active_answer(&t->net, m ? m->number : 0);
		break;
	case ETHERNET_OPENED:
	case ETHERNET_STOPPED:
		active_answer(&t->net, 0);
		break;
	}
	t->depth--;
}

static void net_refused(struct active *a, struct active_message *m, void *data)
{
	struct test *t = data;

	t->refused++;
	if (m->box == ETHERNET_OPEN || m->box == ETHERNET_CHANGE || m->box == ETHERNET_STOP)
		active_answer(&t->net, -ENODEV);
}

static void pci_emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct test *t = data;

	active_answer(&t->pci, 0);
}

static const struct active_role net_role = { .protocol = ACTIVE_ETHERNET, .emitted = net_emitted, .refused = net_refused };
static const struct active_role pci_role = { .protocol = ACTIVE_PCI, .emitted = pci_emitted };

bool test_packet(struct test *t, unsigned int n)
{
	struct active_message *m = &test_messages[n];

	m->box = ETHERNET_XMIT;
	m->number = n;
	return active_send(t->a, m);
}

long test_change(struct test *t, enum test_change kind, u64 value)
{
	struct active_ethernet_change change = { .kind = (enum active_ethernet_change_kind)kind, .value = value };

	return active_ask(t->a, &t->net, ETHERNET_CHANGE, &change, 0);
}

struct test *test_make(const char *name)
{
	struct active_domain_options options = {
		.name = name, .main = test_main, .protocols = active_program_test_main, .priv_size = sizeof(struct test),
		.owner = THIS_MODULE,
	};
	struct active *a = active_create(&options);
	struct test *t;

	if (IS_ERR(a))
		return NULL;
	t = a->priv;
	t->a = a;
	t->noting = true;
	active_request_init(&t->pci);
	active_request_init(&t->net);
	init_completion(&t->held);
	init_completion(&t->release);
	init_completion(&t->raised);
	active_play(a, &net_role, t);
	active_play(a, &pci_role, t);
	active_start(a);
	if (active_ask(a, &t->pci, PCI_PROBE, NULL, 0))
		pr_err("guardrail_active_test: %s was not probed\n", name);
	return t;
}

int test_open(struct test *t)
{
	return active_ask(t->a, &t->net, ETHERNET_OPEN, NULL, 0);
}

int test_end(struct test *t)
{
	long err = active_ask(t->a, &t->net, ETHERNET_STOP, NULL, 0);

	err = err ?: active_ask(t->a, &t->pci, PCI_REMOVE, NULL, 0);
	if (active_wait(t->a))
		return -ETIMEDOUT;
	active_destroy(t->a);
	return err;
}
