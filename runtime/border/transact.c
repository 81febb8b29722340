// SPDX-License-Identifier: GPL-2.0-or-later
/* What calls of the kernel do that are parts of a transaction. Thunks leave these out where none is under way on the CPU. */
#include <linux/dma-mapping.h>

#include "border/custom.h"
#include "border/transact.h"
#include "domain/imports.h"
#include "rights/object.h"
#include "transact/transaction.h"

/* A transaction of which a part was ended ends here, while it can still be undone. */
static void end_doomed(const struct guardrail_transaction *tx)
{
	if (tx->doomed)
		guardrail_unwind(tx->domain);
}

int guardrail_do_irrevocable(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_transaction *tx = guardrail_transaction();

	if (!tx || !applies(action, call) || (action->to && !tx->first))
		return 0;
	end_doomed(tx);
	guardrail_transact_irrevocable(tx, action->to ? "for which calls were made that had been put off" : "which nothing undoes", action->function);
	if (action->to)
		guardrail_transact_make(tx, action->to == 2);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_irrevocable);

/* What lies in the entry's own frames is gone with them. What a call changes elsewhere stays. */
GUARDRAIL_CUSTOM(transact_shared)
{
	struct guardrail_transaction *tx = guardrail_transaction();
	unsigned long p = object_of(action, call);

	if (!tx || (p >= current_stack_pointer && p < (unsigned long)tx->record))
		return 0;
	end_doomed(tx);
	guardrail_transact_irrevocable(tx, "which nothing undoes", action->function);
	return 0;
}

int guardrail_do_touch(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_transaction *tx = guardrail_transaction();

	if (tx)
		tx->touched = true;
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_touch);

void guardrail_port_slow(unsigned long domain, unsigned long ip)
{
	struct guardrail_transaction *tx = guardrail_transaction();

	if (tx)
		tx->touched = true;
}
EXPORT_SYMBOL_GPL(guardrail_port_slow);

int guardrail_do_save(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_transaction *tx = guardrail_transaction();
	struct guardrail_mark mark = { .kind = GUARDRAIL_LOGGED_SAVED };
	unsigned long p, n;

	if (!tx || !range_of(action, call, &p, &n))
		return 0;
	if (guardrail_check_object(action->domain, p, GUARDRAIL_TYPE_SKB))
		mark.kind = GUARDRAIL_LOGGED_PACKET;
	mark.p = p;
	mark.bytes = min_t(unsigned long, n, GUARDRAIL_LOG_BYTES);
	guardrail_transact_note(tx, &mark, (void *)p);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_save);

/* True where the call frees something that a call has freed already which was put off. */
static bool is_deferred(const struct guardrail_transaction *tx, unsigned long p)
{
	const struct guardrail_deferred *deferred;

	for (deferred = tx->first; deferred; deferred = deferred->next)
		if (deferred->p == p)
			return true;
	return false;
}

/*
 * The driver reads what the device has written, though the mapping ends later: then the kernel must not copy anything any
 * more.
 */
static void sync(bool is_list, unsigned long *args)
{
	struct device *dev = (struct device *)args[0];

	if (args[4] & DMA_ATTR_SKIP_CPU_SYNC)
		return;
	if (is_list)
		dma_sync_sg_for_cpu(dev, (struct scatterlist *)args[1], args[2], args[3]);
	else
		dma_sync_single_for_cpu(dev, args[1], args[2], args[3]);
	args[4] |= DMA_ATTR_SKIP_CPU_SYNC;
}

int guardrail_do_defer(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_transaction *tx = guardrail_transaction();
	struct guardrail_deferred deferred = { };

	if (!tx)
		return 0;
	if (!value_of(&action->pointer, call, &deferred.p))
		deferred.p = 0;
	/* What the call requires is required now, while the entry can be ended. */
	if (action->type && !ZERO_OR_NULL_PTR((void *)deferred.p) &&
	    (!guardrail_check_owner(action->domain, deferred.p, action->type, NULL) || is_deferred(tx, deferred.p)))
		guardrail_refuse(action, call, "release of memory at", deferred.p, "no right to it any more", "owner");
	deferred.packet = action->to == 3;
	deferred.call = guardrail_find_import(action->domain, action->target);
	memcpy(deferred.args, call->args, sizeof(deferred.args));
	if (action->to == 1 || action->to == 2)
		sync(action->to == 2, deferred.args);
	call->result = 0;
	call->second = 0;
	if (deferred.call && guardrail_transact_defer(tx, &deferred)) {
		tx->calls++;
		return 1;
	}
	guardrail_transact_irrevocable(tx, "which cannot be put off", action->function);
	/* What was put off before comes first. */
	guardrail_transact_make(tx, false);
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_defer);

int guardrail_do_reverse(const struct guardrail_action *action, struct guardrail_call *call)
{
	struct guardrail_transaction *tx = guardrail_transaction();
	const struct guardrail_mark mark = { .bytes = sizeof(struct guardrail_logged_call), .kind = GUARDRAIL_LOGGED_CALLED };
	struct guardrail_logged_call made = { .inverse = action->inverse };

	if (!tx || !applies(action, call))
		return 0;
	if (guardrail_values(action, call, made.args, ARRAY_SIZE(made.args)) < 0) {
		guardrail_transact_irrevocable(tx, "of which a value is not known", action->function);
		return 0;
	}
	guardrail_transact_note(tx, &mark, &made);
	tx->calls++;
	return 0;
}
EXPORT_SYMBOL_GPL(guardrail_do_reverse);

void guardrail_note_created(const struct guardrail_action *action, unsigned long p)
{
	const struct guardrail_mark mark = { .p = p, .bytes = sizeof(action->type), .kind = GUARDRAIL_LOGGED_CREATED };
	struct guardrail_transaction *tx = guardrail_transaction();

	/* What comes with an entry is the caller's. */
	if (!tx || action->when & GUARDRAIL_OF_ENTRY)
		return;
	guardrail_transact_note(tx, &mark, &action->type);
	tx->calls++;
}

void guardrail_note_moved(const struct guardrail_action *action, unsigned long p)
{
	struct guardrail_transaction *tx = guardrail_transaction();
	int state = guardrail_object_state(action->domain, p, action->type);
	const u32 payload[] = { action->type, state };
	const struct guardrail_mark mark = { .p = p, .bytes = sizeof(payload), .kind = GUARDRAIL_LOGGED_MOVED };

	if (tx && state >= 0)
		guardrail_transact_note(tx, &mark, payload);
}
