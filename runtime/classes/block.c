// SPDX-License-Identifier: GPL-2.0-or-later
/* Requests of block devices: what calls do to rights beyond the fields of their structures. */
#include <linux/blk-mq.h>

#include "border/custom.h"

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

/* A driver that takes many requests at once writes itself to the queue's table of running requests. */
GUARDRAIL_CUSTOM(hctx_new)
{
	struct blk_mq_hw_ctx *hctx = (struct blk_mq_hw_ctx *)object_of(action, call);

	if (!hctx || !hctx->queue->mq_ops->queue_rqs || !hctx->tags)
		return 0;
	return guardrail_grant_fresh(action->domain, (unsigned long)hctx->tags->rqs,
				   hctx->tags->nr_tags * sizeof(*hctx->tags->rqs));
}
