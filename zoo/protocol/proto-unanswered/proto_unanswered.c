// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Starts a request of its own and never ends it; at unload it leaves the queue behind, which would
 * wait for it.
 *
 * Twin: starts a request of its own, ends it, and gives the queue back at unload.
 */
#include "zoo.h"
#include <linux/blk-mq.h>
#include <linux/blkdev.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 9, 0)
#define alloc_queue(set) blk_mq_init_queue(set)
#else
#define alloc_queue(set) blk_mq_alloc_queue(set, NULL, NULL)
#endif

static struct blk_mq_tag_set tags;
static struct request_queue *queue;

static blk_status_t proto_unanswered_queue(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *data)
{
	return BLK_STS_IOERR;
}

static const struct blk_mq_ops queue_ops = {
	.queue_rq = proto_unanswered_queue,
};

static noinline void proto_unanswered_issue(struct request *rq)
{
	blk_mq_start_request(rq); /* BUG: protocol-unanswered */
#ifdef TWIN
	blk_mq_end_request(rq, BLK_STS_OK);
#endif
}

static int __init proto_unanswered_init(void)
{
	struct request *rq;
	int err;

	tags.ops = &queue_ops;
	tags.nr_hw_queues = 1;
	tags.queue_depth = 4;
	tags.numa_node = NUMA_NO_NODE;
	/* Nobody looks for the request before the machine is gone. */
	tags.timeout = 24 * 3600 * HZ;
	err = blk_mq_alloc_tag_set(&tags);
	if (err)
		return err;
	queue = alloc_queue(&tags);
	if (IS_ERR(queue)) {
		err = PTR_ERR(queue);
		goto free;
	}
	rq = blk_mq_alloc_request(queue, REQ_OP_DRV_IN, 0);
	if (IS_ERR(rq)) {
		err = PTR_ERR(rq);
		goto destroy;
	}
	proto_unanswered_issue(rq);
	return 0;
destroy:
	blk_mq_destroy_queue(queue);
	blk_put_queue(queue);
free:
	blk_mq_free_tag_set(&tags);
	return err;
}

static void __exit proto_unanswered_exit(void)
{
#ifdef TWIN
	blk_mq_destroy_queue(queue);
	blk_put_queue(queue);
	blk_mq_free_tag_set(&tags);
#endif
}

module_init(proto_unanswered_init);
module_exit(proto_unanswered_exit);
MODULE_DESCRIPTION("zoo: never ends a request that it started");
