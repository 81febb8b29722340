// SPDX-License-Identifier: GPL-2.0-or-later
/* Requests of block devices: what calls do to rights beyond the fields of their structures. */
#include <linux/blk-mq.h>

#include "border/custom.h"
#include "domain/entry.h"
#include "rights/fields.h"
#include "rights/memory.h"
#include "transact/transaction.h"

static void clear_requests(u32 domain, const struct blk_mq_tag_set *set, const struct blk_mq_tags *tags)
{
	unsigned int i;

	if (!tags || !tags->static_rqs)
		return;
	guardrail_revoke(domain, (unsigned long)tags->rqs, tags->nr_tags * sizeof(*tags->rqs));
	for (i = 0; i < tags->nr_tags; i++)
		if (tags->static_rqs[i])
			guardrail_revoke(domain, (unsigned long)tags->static_rqs[i],
					sizeof(struct request) + set->cmd_size);
}

/* The requests of a tag set are freed. */
GUARDRAIL_CUSTOM(tags_gone)
{
	struct blk_mq_tag_set *set = (struct blk_mq_tag_set *)object_of(action, call);
	unsigned int i;

	if (!set)
		return 0;
	clear_requests(action->domain, set, set->shared_tags);
	for (i = 0; set->tags && i < set->nr_hw_queues; i++)
		clear_requests(action->domain, set, set->tags[i]);
	return 0;
}

/*
 * A function that was to start a request was ended. A request that it has started may be the device's, which completes it, or
 * else its time runs out. One that it has not started fails with the error of the entry, and where the entry is undone, the
 * kernel queues the request again. One that was started in a transaction may be done already.
 */
GUARDRAIL_CUSTOM(queue_ended)
{
	const struct blk_mq_queue_data *queued = (const struct blk_mq_queue_data *)object_of(action, call);

	if (queued && was_undone(call))
		call->result = BLK_STS_RESOURCE;
	else if (queued && (was_kept(call) || (was_ended(call) && blk_mq_request_started(queued->rq))))
		call->result = BLK_STS_OK;
	return 0;
}

/*
 * From now on the kernel may ask the driver to end the request: when its time runs out, or when the device is reset. So the
 * driver has all that is needed for that, which must not be undone. If the entry ends here, its device is restored, which ends
 * the request, and the kernel repeats it.
 */
GUARDRAIL_CUSTOM(transact_started)
{
	const struct request *rq = (const struct request *)object_of(action, call);
	struct guardrail_transaction *tx = guardrail_transaction();
	const struct blk_mq_queue_data *queued;

	if (!rq || !tx)
		return 0;
	/* It is the request that the entry is called with; of others it is not known what the driver does with them. */
	queued = (const struct blk_mq_queue_data *)tx->record->call.args[1];
	if (tx->record->call.args[0] == (unsigned long)pointer_at(&rq->mq_hctx) && pointer_at(&queued->rq) == rq)
		tx->kept = true;
	else
		guardrail_transact_irrevocable(tx, "which nothing undoes", action->function);
	return 0;
}

/* A driver that takes many requests at once writes itself to the queue's table of running requests. */
GUARDRAIL_CUSTOM(hctx_new)
{
	struct blk_mq_hw_ctx *hctx = (struct blk_mq_hw_ctx *)object_of(action, call);

	if (!hctx || !hctx->queue->mq_ops->queue_rqs || !hctx->tags)
		return 0;
	return guardrail_grant_fresh(action->domain, (unsigned long)hctx->tags->rqs,
				   hctx->tags->nr_tags * sizeof(*hctx->tags->rqs));
}

/*
 * A request is the driver's: the memory behind it, until it ends. A driver that initializes requests has that memory for
 * as long as the request exists.
 */
static int give(u32 domain, struct request *rq)
{
	if (rq->q->mq_ops->init_request)
		return 0;
	return guardrail_give(domain, (unsigned long)(rq + 1), rq->q->tag_set->cmd_size, KIND_PRIVATE);
}

static void take(u32 domain, const struct request *rq)
{
	if (guardrail_take(domain, (unsigned long)(rq + 1), KIND_PRIVATE))
		guardrail_revoke(domain, (unsigned long)rq, sizeof(*rq));
}

GUARDRAIL_CUSTOM(request_given)
{
	struct request *rq = (struct request *)object_of(action, call);

	return rq ? give(action->domain, rq) : 0;
}

/* A request that was not accepted stays the kernel's. One that was may be done already. */
GUARDRAIL_CUSTOM(request_refused)
{
	struct request *rq = (struct request *)object_of(action, call);

	if (rq && (blk_status_t)call->result != BLK_STS_OK)
		take(action->domain, rq);
	return 0;
}

GUARDRAIL_CUSTOM(request_done)
{
	struct request *rq = (struct request *)object_of(action, call);

	if (rq)
		take(action->domain, rq);
	return 0;
}

#ifdef rq_list_peek
typedef struct request *requests_t;
#else
typedef struct rq_list requests_t;
#endif

/* Inlined functions take requests from the list, note them as running, and put back those that are not accepted. */
static const struct guardrail_field taken[] = {
	{ offsetof(struct request, rq_next), sizeof_field(struct request, rq_next) },
};

/* The requests of a list are queued at once. */
GUARDRAIL_CUSTOM(requests_given)
{
	requests_t *list = (requests_t *)object_of(action, call);
	struct request *rq;
	int err = 0;

	if (!list)
		return 0;
	rq_list_for_each(list, rq) {
		struct blk_mq_tags *tags = rq->mq_hctx->tags;

		err = err ?: guardrail_fields_change(action->domain, (unsigned long)rq, taken, ARRAY_SIZE(taken), GUARDRAIL_WRITE);
		err = err ?: give(action->domain, rq);
		if (!rq->q->mq_ops->init_request && rq->tag >= 0 && rq->tag < tags->nr_tags)
			err = err ?: guardrail_grant(action->domain, (unsigned long)&tags->rqs[rq->tag],
						   sizeof(tags->rqs[0]));
	}
	return err;
}

/* A list of requests ends at once. */
GUARDRAIL_CUSTOM(requests_done)
{
	struct io_comp_batch *iob = (struct io_comp_batch *)object_of(action, call);
	struct request *rq;

	if (!iob || !guardrail_check_write(action->domain, (unsigned long)iob, sizeof(*iob)))
		return 0;
	rq_list_for_each(&iob->req_list, rq)
		take(action->domain, rq);
	return 0;
}
