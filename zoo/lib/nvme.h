/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An NVMe controller with one admin queue and one I/O queue: how it starts. The I/O queue is the driver's afterwards.
 */
#ifndef ZOO_NVME_H
#define ZOO_NVME_H

#include "zoo.h"
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/nvme.h>
#include <linux/pci.h>

struct zoo_nvme_queue {
	struct nvme_command *commands;
	struct nvme_completion *completions;
	dma_addr_t commands_at, completions_at;
	void __iomem *bell;		/* of the commands; that of the completions follows */
	void __iomem *heard;
	unsigned int tail, head, phase;
};

struct zoo_nvme {
	struct pci_dev *pdev;
	void __iomem *bar;
	unsigned int entries;		/* of each queue */
	struct zoo_nvme_queue admin, io;
	u64 capacity;			/* in sectors of 512 bytes */
};

static bool zoo_nvme_wait(struct zoo_nvme *n, u32 wanted)
{
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		u32 status = readl(n->bar + NVME_REG_CSTS);

		if (status == ~0u)
			return false;
		if ((status & NVME_CSTS_RDY) == wanted)
			return true;
		msleep(1);
	}
	return false;
}

/* Performs an administrative command, and waits for its completion. */
static int zoo_nvme_admin(struct zoo_nvme *n, struct nvme_command *command)
{
	struct zoo_nvme_queue *q = &n->admin;
	struct nvme_completion *c = &q->completions[q->head];
	unsigned int i;
	u16 status;

	memcpy(&q->commands[q->tail], command, sizeof(*command));
	q->tail = (q->tail + 1) % n->entries;
	writel(q->tail, q->bell);
	for (i = 0; i < 1000; i++) {
		status = le16_to_cpu(READ_ONCE(c->status));
		if ((status & 1) == q->phase)
			break;
		msleep(1);
	}
	if (i == 1000)
		return -ETIMEDOUT;
	if (++q->head == n->entries) {
		q->head = 0;
		q->phase ^= 1;
	}
	writel(q->head, q->heard);
	return status >> 1 ? -EIO : 0;
}

static int zoo_nvme_queue_make(struct zoo_nvme *n, struct zoo_nvme_queue *q, unsigned int number)
{
	struct device *dev = &n->pdev->dev;
	u32 stride = 4 << NVME_CAP_STRIDE(readq(n->bar + NVME_REG_CAP));

	q->phase = 1;
	q->bell = n->bar + NVME_REG_DBS + 2 * number * stride;
	q->heard = q->bell + stride;
	q->commands = dma_alloc_coherent(dev, n->entries * sizeof(*q->commands), &q->commands_at, GFP_KERNEL);
	q->completions = dma_alloc_coherent(dev, n->entries * sizeof(*q->completions), &q->completions_at, GFP_KERNEL);
	return q->commands && q->completions ? 0 : -ENOMEM;
}

static void zoo_nvme_queue_free(struct zoo_nvme *n, struct zoo_nvme_queue *q)
{
	struct device *dev = &n->pdev->dev;

	if (q->commands)
		dma_free_coherent(dev, n->entries * sizeof(*q->commands), q->commands, q->commands_at);
	if (q->completions)
		dma_free_coherent(dev, n->entries * sizeof(*q->completions), q->completions, q->completions_at);
}

static void zoo_nvme_free(struct zoo_nvme *n)
{
	zoo_nvme_queue_free(n, &n->admin);
	zoo_nvme_queue_free(n, &n->io);
}

/* Reads the capacity of the namespace; its sectors must have 512 bytes. */
static int zoo_nvme_identify(struct zoo_nvme *n)
{
	struct nvme_command command = { .identify = { .opcode = nvme_admin_identify, .nsid = cpu_to_le32(1) } };
	struct nvme_id_ns *answer;
	dma_addr_t at;
	int err;

	answer = dma_alloc_coherent(&n->pdev->dev, PAGE_SIZE, &at, GFP_KERNEL);
	if (!answer)
		return -ENOMEM;
	command.identify.dptr.prp1 = cpu_to_le64(at);
	err = zoo_nvme_admin(n, &command);
	if (!err) {
		n->capacity = le64_to_cpu(answer->nsze);
		if (answer->lbaf[answer->flbas & 0xf].ds != SECTOR_SHIFT || !n->capacity)
			err = -ENODEV;
	}
	dma_free_coherent(&n->pdev->dev, PAGE_SIZE, answer, at);
	return err;
}

static int zoo_nvme_start(struct zoo_nvme *n, unsigned int entries)
{
	struct nvme_command cq = { .create_cq = {
		.opcode = nvme_admin_create_cq,
		.cqid = cpu_to_le16(1),
		.qsize = cpu_to_le16(entries - 1),
		.cq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG | NVME_CQ_IRQ_ENABLED),
	} };
	struct nvme_command sq = { .create_sq = {
		.opcode = nvme_admin_create_sq,
		.sqid = cpu_to_le16(1),
		.qsize = cpu_to_le16(entries - 1),
		.sq_flags = cpu_to_le16(NVME_QUEUE_PHYS_CONTIG),
		.cqid = cpu_to_le16(1),
	} };
	int err;

	n->entries = entries;
	writel(0, n->bar + NVME_REG_CC);
	if (!zoo_nvme_wait(n, 0))
		return -EIO;
	err = zoo_nvme_queue_make(n, &n->admin, 0) ?: zoo_nvme_queue_make(n, &n->io, 1);
	if (err)
		return err;
	writel((entries - 1) << 16 | (entries - 1), n->bar + NVME_REG_AQA);
	lo_hi_writeq(n->admin.commands_at, n->bar + NVME_REG_ASQ);
	lo_hi_writeq(n->admin.completions_at, n->bar + NVME_REG_ACQ);
	writel(NVME_CC_IOSQES | NVME_CC_IOCQES | NVME_CC_ENABLE, n->bar + NVME_REG_CC);
	if (!zoo_nvme_wait(n, NVME_CSTS_RDY))
		return -EIO;
	cq.create_cq.prp1 = cpu_to_le64(n->io.completions_at);
	sq.create_sq.prp1 = cpu_to_le64(n->io.commands_at);
	return zoo_nvme_identify(n) ?: zoo_nvme_admin(n, &cq) ?: zoo_nvme_admin(n, &sq);
}

#endif
