// SPDX-License-Identifier: GPL-2.0-or-later
/* Makes domains, ends them, and asks them. */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "domain.h"

unsigned int active_deadline = 10;
module_param_named(deadline, active_deadline, uint, 0644);
MODULE_PARM_DESC(deadline, "seconds after which an answer of a driver is late");
EXPORT_SYMBOL_GPL(active_deadline);

static bool thread_only;
module_param(thread_only, bool, 0644);
MODULE_PARM_DESC(thread_only, "run the drivers of new domains in their threads only");

/* One bit for each of the boxes of a protocol's messages to the driver. */
static u64 boxes_of(const struct active_protocol *protocol)
{
	return (protocol->in_count < 64 ? ACTIVE_BIT(protocol->in_count) - 1 : ~0ULL) << protocol->first_in;
}

static void add_part(struct active_domain *d, const struct active_protocol *protocol)
{
	struct active_part *part = &d->parts[d->part_count];
	unsigned int i;

	part->protocol = protocol;
	part->mask = boxes_of(protocol);
	d->known |= part->mask;
	for (i = 0; i < protocol->in_count; i++) {
		unsigned int box = protocol->first_in + i;

		d->part_of[box] = d->part_count;
		d->room[box] = protocol->ins[i].room;
		if (protocol->ins[i].flags & ACTIVE_BOX_SLEEPS)
			d->sleeping |= ACTIVE_BIT(box);
		if (protocol->ins[i].flags & ACTIVE_BOX_HEAD)
			d->heads |= ACTIVE_BIT(box);
	}
	for (i = 0; i < protocol->out_count; i++)
		d->part_of[protocol->first_out + i] = d->part_count;
	d->by_protocol[protocol - active_protocols] = part;
	d->part_count++;
	active_moved(d, part, protocol->initial);
}

/* Finds the protocols by their names. */
static int add_parts(struct active_domain *d, const char *names)
{
	unsigned int i;
	size_t n;

	for (; *names; names += n + (names[n] == ' ')) {
		n = strcspn(names, " ");
		for (i = 0; i < ACTIVE_PROTOCOLS; i++)
			if (strlen(active_protocols[i].name) == n && !memcmp(active_protocols[i].name, names, n))
				break;
		if (!n)
			continue;
		if (i == ACTIVE_PROTOCOLS || d->part_count == ACTIVE_PARTS) {
			pr_err("guardrail: active %s: there is no protocol %.*s\n", d->name, (int)n, names);
			return -EINVAL;
		}
		if (!(d->known & boxes_of(&active_protocols[i])))
			add_part(d, &active_protocols[i]);
	}
	return 0;
}

static int thread_main(void *data)
{
	struct active_domain *d = data;

	while (!kthread_should_stop()) {
		set_current_state(TASK_IDLE);
		if (smp_load_acquire(&d->handed)) {
			__set_current_state(TASK_RUNNING);
			d->handed = false;
			active_serve(d, NULL, ACTIVE_BY_THREAD);
			continue;
		}
		if (!kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
	}
	return 0;
}

/* A stack whose first run begins in active_entry(), with the domain in r12. */
static int make_stack(struct active_domain *d)
{
	void **sp;

	d->stack = active_stack_alloc();
	if (!d->stack)
		return -ENOMEM;
	*d->stack = ACTIVE_CANARY;
	sp = (void **)((char *)d->stack + THREAD_SIZE - 64);
	*--sp = active_entry;
	*--sp = NULL;		/* rbp */
	*--sp = NULL;		/* rbx */
	*--sp = d;		/* r12 */
	*--sp = NULL;		/* r13 */
	*--sp = NULL;		/* r14 */
	*--sp = NULL;		/* r15 */
	d->inside = sp;
	return 0;
}

static void free_domain(struct active_domain *d)
{
	if (d->thread)
		kthread_stop(d->thread);
	vfree(d->stack);
	kfree(d->a.priv);
	kfree(d);
}

struct active *active_create(const struct active_domain_options *options)
{
	struct active_domain *d = kzalloc(sizeof(*d), GFP_KERNEL);
	unsigned int i;
	int err = -ENOMEM;

	if (!d)
		return ERR_PTR(-ENOMEM);
	strscpy(d->name, options->name, sizeof(d->name));
	d->main = options->main;
	d->owner = options->owner;
	d->thread_only = thread_only;
	memset(d->part_of, 0xff, sizeof(d->part_of));
	for (i = 0; i < ARRAY_SIZE(d->queues); i++)
		d->queues[i].last = &d->queues[i].first;
	init_completion(&d->done);
	active_irq_init(d);
	active_timer_init(d);
	d->a.priv = kzalloc(max_t(size_t, options->priv_size, 1), GFP_KERNEL);
	if (!d->a.priv || make_stack(d))
		goto failed;
	err = add_parts(d, options->protocols);
	if (err)
		goto failed;
	d->thread = kthread_create(thread_main, d, "active/%s", d->name);
	if (IS_ERR(d->thread)) {
		err = PTR_ERR(d->thread);
		d->thread = NULL;
		goto failed;
	}
	/* kthread_stop() does not run a thread that has never run. */
	wake_up_process(d->thread);
	active_play(&d->a, &active_irq_role, d);
	active_play(&d->a, &active_timer_role, d);
	active_monitor_add(d);
	return &d->a;
failed:
	free_domain(d);
	return ERR_PTR(err);
}
EXPORT_SYMBOL_GPL(active_create);

void active_play(struct active *a, const struct active_role *role, void *data)
{
	struct active_part *part = active_domain(a)->by_protocol[role->protocol];

	if (part) {
		part->role = role;
		part->data = data;
	}
}
EXPORT_SYMBOL_GPL(active_play);

const struct active_role *active_role_of(struct active *a, enum active_protocol_id protocol)
{
	struct active_part *part = active_domain(a)->by_protocol[protocol];

	return part ? part->role : NULL;
}
EXPORT_SYMBOL_GPL(active_role_of);

void *active_data(struct active *a, enum active_protocol_id protocol)
{
	struct active_part *part = active_domain(a)->by_protocol[protocol];

	return part ? part->data : NULL;
}
EXPORT_SYMBOL_GPL(active_data);

void active_start(struct active *a)
{
	active_serve(active_domain(a), NULL, ACTIVE_BY_SENDER);
}
EXPORT_SYMBOL_GPL(active_start);

int active_wait(struct active *a)
{
	struct active_domain *d = active_domain(a);
	unsigned long end = jiffies + active_deadline * HZ;

	if (!d->started || d->own)
		return 0;
	if (!wait_for_completion_timeout(&d->done, active_deadline * HZ))
		goto stays;
	/* Becomes the owner, so that nobody runs on its stack. */
	while (cmpxchg(&d->inbox, ACTIVE_IDLE, NULL) != ACTIVE_IDLE) {
		if (time_after(jiffies, end))
			goto stays;
		usleep_range(100, 200);
	}
	d->own = true;
	active_got(d);
	return 0;
stays:
	pr_err("guardrail: active %s: it did not end in %u s, and stays\n", d->name, active_deadline);
	__module_get(d->owner);
	__module_get(THIS_MODULE);
	return -ETIMEDOUT;
}
EXPORT_SYMBOL_GPL(active_wait);

void active_destroy(struct active *a)
{
	struct active_domain *d = active_domain(a);

	if (WARN_ON(d->started && !d->own))
		return;
	tasklet_kill(&d->tasklet);
	active_timer_end(d);
	active_monitor_remove(d);
	free_domain(d);
}
EXPORT_SYMBOL_GPL(active_destroy);

void active_request_init(struct active_request *r)
{
	memset(r, 0, sizeof(*r));
	init_completion(&r->done);
}
EXPORT_SYMBOL_GPL(active_request_init);

void active_answer(struct active_request *r, long result)
{
	r->result = result;
	active_passed(r);
	complete(&r->done);
}
EXPORT_SYMBOL_GPL(active_answer);

long active_ask(struct active *a, struct active_request *r, unsigned int box, void *pointer, long number)
{
	struct active_domain *d = active_domain(a);

	if (r->lost)
		return -ETIMEDOUT;
	reinit_completion(&r->done);
	r->message.box = box;
	r->message.pointer = pointer;
	r->message.number = number;
	if (!active_send(a, &r->message))
		return -EBUSY;
	if (!wait_for_completion_timeout(&r->done, active_deadline * HZ)) {
		r->lost = true;
		active_report(d, 4, "no answer to %s in %u s", active_box_name(d, box), active_deadline);
		return -ETIMEDOUT;
	}
	active_got(r);
	pr_debug("guardrail: active %s: %s is answered with %ld\n", d->name, active_box_name(d, box), r->result);
	return r->result;
}
EXPORT_SYMBOL_GPL(active_ask);

const char *active_name(struct active *a)
{
	return active_domain(a)->name;
}
EXPORT_SYMBOL_GPL(active_name);
