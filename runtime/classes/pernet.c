// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory that a module has in each network namespace. */
#include <linux/kfence.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

#include "border/custom.h"
#include "rights/memory.h"

#define MOST 16
/* The first numbers lie where the list's own length does. */
#define FIRST DIV_ROUND_UP(sizeof(((struct net_generic *)NULL)->s), sizeof(void *))

/* What domains have registered; NULL marks a free place. */
static struct {
	const struct pernet_operations *ops;
	unsigned int *id, number;
	size_t size;
	u32 domain;
} known[MOST];
/* Protects known. Taken in process context; nothing nests inside. */
static DEFINE_SPINLOCK(lock);

/* Operations are about to be registered. The kernel sets their number, and allocates so much for each namespace. */
GUARDRAIL_CUSTOM(pernet_new)
{
	const struct pernet_operations *ops = (const struct pernet_operations *)object_of(action, call);
	int i;

	if (!ops || !ops->id || !ops->size || !guardrail_require_write(action, call, (unsigned long)ops->id, sizeof(*ops->id)))
		return 0;
	spin_lock(&lock);
	for (i = 0; i < MOST; i++) {
		if (known[i].ops)
			continue;
		known[i].ops = ops;
		known[i].id = ops->id;
		known[i].number = 0;
		known[i].size = ops->size;
		known[i].domain = action->domain;
		break;
	}
	spin_unlock(&lock);
	return 0;
}

/* Operations are unregistered, or were not registered. */
GUARDRAIL_CUSTOM(pernet_gone)
{
	const struct pernet_operations *ops = (const struct pernet_operations *)object_of(action, call);
	int i;

	spin_lock(&lock);
	for (i = 0; i < MOST; i++)
		if (known[i].ops == ops && known[i].domain == action->domain)
			known[i].ops = NULL;
	spin_unlock(&lock);
	return 0;
}

/* The kernel's memory for operations in a namespace. */
static unsigned long memory_of(const struct net *net, unsigned int id)
{
	struct net_generic *generic;
	unsigned long p = 0;

	rcu_read_lock();
	generic = rcu_dereference(net->gen);
	if (id >= FIRST && id < generic->s.len)
		p = (unsigned long)generic->ptr[id];
	rcu_read_unlock();
	return p;
}

/* Whether the memory has the size of an allocation of so many bytes. KFENCE keeps what was asked for, the allocator what it gave. */
static bool is_of_size(const void *p, size_t size)
{
	return ksize(p) == (is_kfence_address(p) ? size : kmalloc_size_roundup(size));
}

static int each(const struct guardrail_action *action, const struct net *net, bool give)
{
	int i, err = 0;

	for (i = 0; i < MOST && !err; i++) {
		unsigned long p;

		if (!READ_ONCE(known[i].ops) || known[i].domain != action->domain)
			continue;
		/* The kernel has just set the number when the first namespace begins. Later the driver may have changed it. */
		if (!known[i].number)
			known[i].number = READ_ONCE(*known[i].id);
		p = memory_of(net, known[i].number);
		/* Another module's memory mostly has another size. */
		if (!p || !is_of_size((void *)p, known[i].size))
			continue;
		if (give)
			err = guardrail_give(action->domain, p, known[i].size, KIND_PRIVATE);
		else
			guardrail_take(action->domain, p, KIND_PRIVATE);
	}
	return err;
}

/* A namespace begins, or the driver's part of it. */
GUARDRAIL_CUSTOM(pernet_begins)
{
	const struct net *net = (const struct net *)object_of(action, call);

	return net ? each(action, net, true) : 0;
}

GUARDRAIL_CUSTOM(pernet_ends)
{
	const struct net *net = (const struct net *)object_of(action, call);

	return net ? each(action, net, false) : 0;
}
