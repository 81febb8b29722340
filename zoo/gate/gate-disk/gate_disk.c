// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A disk driver for QEMU's NVMe controller, to show that faults are contained: one admin queue, one I/O queue, one
 * request one command, all data through a buffer of the request's own. A patrol reads a sector now and then.
 * Its mistakes are in the part "Planted faults".
 */
#include <linux/blk-mq.h>
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/pci.h>
#include "gate.h"

/* Registers. */
#define ZD_CAP			0x00
#define ZD_CC			0x14
#define ZD_CSTS			0x1c
#define ZD_AQA			0x24
#define ZD_ASQ			0x28
#define ZD_ACQ			0x30
#define ZD_BELLS		0x1000
#define ZD_CC_ON		0x00460001	/* entries of 64 and 16 bytes, enabled */
#define ZD_READY		0x1

#define ZD_WRITE		0x01
#define ZD_READ			0x02
#define ZD_CREATE_SQ		0x01
#define ZD_CREATE_CQ		0x05
#define ZD_IDENTIFY		0x06

#define ZD_ENTRIES		32		/* of each queue: half a page of commands */
#define ZD_DEPTH		16		/* requests at a time */
#define ZD_PATROL		ZD_DEPTH	/* the patrol's command, behind the requests' */
#define ZD_SECTORS		16		/* of a request: two pages */
#define ZD_PATROL_TIME		msecs_to_jiffies(50)
#define ZD_PATROL_SECTORS	8
#define ZD_LIMIT		msecs_to_jiffies(5000)

struct zd_command {
	u8 opcode;
	u8 flags;
	__le16 id;
	__le32 namespace;
	__le64 reserved[2];
	__le64 page[2];
	union {
		struct {
			__le64 lba;
			__le16 last;		/* sectors, less one */
			__le16 control;
			__le32 rest[3];
		};
		__le32 words[6];
	};
};

struct zd_completion {
	__le32 result;
	__le32 reserved;
	__le16 head;
	__le16 queue;
	__le16 id;
	__le16 status;			/* bit 0 is the phase */
};

struct zd_queue {
	struct zd_command *commands;
	struct zd_completion *completions;
	dma_addr_t commands_at, completions_at;
	void __iomem *bell;		/* of the commands; that of the completions follows */
	void __iomem *heard;
	unsigned int tail, head, phase;
};

/* What the driver remembers of each entry of the I/O queue. */
struct zd_entry {
	u64 first;			/* the first sector of the disk */
	struct zd_command sent;
	unsigned long when;
	u64 page[2];
	u32 part[2];			/* sectors in each page */
};

/* Where a request under way goes. */
struct zd_extent {
	struct list_head list;
	u32 sectors;
	dma_addr_t addr;
	u64 lba;
};

/* A request of the block layer's; the owner of the request owns it. */
struct zd_request {
	struct zd_extent *extent;	/* while the device has it; under the lock */
	void *buffer;
	void *scratch;
	dma_addr_t addr;
	u32 bytes;
	enum dma_data_direction direction;
	blk_status_t status;
	bool freed;			/* by a planted fault */
};

struct zd_disk {
	struct pci_dev *pdev;
	void __iomem *bar;
	struct zd_queue admin, io;
	struct blk_mq_tag_set tags;
	struct gendisk *disk;
	u64 capacity;
	struct kmem_cache *extent_cache;
	struct zd_entry *entries[ZD_ENTRIES];
	void *patrol_buffer;
	dma_addr_t patrol_addr;
	struct timer_list patrol;

	spinlock_t lock;		/* guards what follows, the I/O queue and its entries */
	struct zd_command next;		/* the command that is being built */
	struct list_head under_way;
	u64 patrol_lba;
	unsigned int patrolling;	/* sectors that are still to be read */
	bool dead;

	/* What only the planted faults look at. */
	struct gate_plan plan;
	struct { dma_addr_t addr; u32 bytes; } unmapped[8];
	unsigned int n_unmapped;
};

static void zd_note_unmapped(struct zd_disk *d, const struct zd_request *r);
static void plant_race(struct zd_disk *d, const struct zd_extent *e);
static void plant_overflow(struct zd_entry *entry);
static unsigned int plant_oob_queue(struct zd_disk *d);
static void plant_stale_list(struct zd_disk *d, struct zd_extent *e);
static void plant_use_after_free(struct zd_request *r);
static void plant_dma_reuse(struct zd_request *r);
static void plant_dma_freed(struct zd_request *r);
static void plant_double_unmap(struct zd_disk *d, struct zd_extent *e);
static unsigned int plant_uninit_data(u32 bytes);

/* ---- Commands, under the lock ---- */

/* Where the next command goes. */
static noinline void zd_aim(struct zd_disk *d, u64 lba, u32 sectors)
{
	d->next.lba = cpu_to_le64(lba);
	d->next.last = cpu_to_le16(sectors - 1);
}

/* What it does there, with which memory. */
static noinline void zd_load(struct zd_disk *d, u8 opcode, u16 id, dma_addr_t addr, u32 bytes, bool overflow)
{
	struct zd_entry *entry = d->entries[d->io.tail];
	unsigned int i, pages = bytes > PAGE_SIZE ? 2 : 1;

	for (i = 0; i < pages; i++) {
		entry->page[i] = addr + i * PAGE_SIZE;
		entry->part[i] = min_t(u32, bytes - i * PAGE_SIZE, PAGE_SIZE) / SECTOR_SIZE;
	}
	if (overflow)
		plant_overflow(entry);
	d->next.opcode = opcode;
	d->next.flags = 0;
	d->next.id = cpu_to_le16(id);
	d->next.namespace = cpu_to_le32(1);
	d->next.page[0] = cpu_to_le64(entry->page[0]);
	d->next.page[1] = pages == 2 ? cpu_to_le64(entry->page[1]) : 0;
	d->next.lba = cpu_to_le64(entry->first + le64_to_cpu(d->next.lba));
}

/* Sends it. */
static noinline void zd_send(struct zd_disk *d, unsigned int beyond)
{
	struct zd_queue *q = &d->io;

	d->entries[q->tail]->sent = d->next;
	d->entries[q->tail]->when = jiffies;
	memcpy(&q->commands[q->tail + beyond], &d->next, sizeof(d->next)); /* BUG: oob-queue */
	q->tail = (q->tail + 1) % ZD_ENTRIES;
	writel(q->tail, q->bell);
}

/* ---- Requests ---- */

static noinline struct zd_extent *zd_extent_of(struct zd_disk *d, struct request *rq, enum gate_fault mistake)
{
	struct zd_extent *e = kmem_cache_alloc(d->extent_cache, GFP_ATOMIC);

	if (!e)
		return NULL;
	if (mistake != GATE_UNINIT)
		e->lba = blk_rq_pos(rq);
	e->sectors = blk_rq_sectors(rq);
	return e;
}

static noinline void zd_copy(struct request *rq, struct zd_request *r, unsigned int skip)
{
	struct req_iterator iter;
	struct bio_vec bv;
	unsigned int at = 0;

	rq_for_each_segment(bv, rq, iter) {
		unsigned int left_out = clamp_t(unsigned int, skip, at, at + bv.bv_len) - at;
		void *data = bvec_kmap_local(&bv);

		if (r->direction == DMA_TO_DEVICE)
			memcpy(r->buffer + at + left_out, data + left_out, bv.bv_len - left_out);
		else
			memcpy(data, r->buffer + at, bv.bv_len);
		kunmap_local(data);
		at += bv.bv_len;
	}
}

static void zd_release(struct zd_disk *d, struct zd_request *r)
{
	dma_unmap_single(&d->pdev->dev, r->addr, r->bytes, r->direction);
}

static blk_status_t zd_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct zd_disk *d = hctx->queue->queuedata;
	struct request *rq = bd->rq;
	struct zd_request *r = blk_mq_rq_to_pdu(rq);
	bool write = req_op(rq) == REQ_OP_WRITE;
	enum gate_fault mistake = write ? gate_next(&d->plan) : GATE_NONE;
	struct zd_extent *e;
	unsigned long flags;

	if (!write && req_op(rq) != REQ_OP_READ)
		return BLK_STS_NOTSUPP;
	e = zd_extent_of(d, rq, mistake);
	r->bytes = blk_rq_bytes(rq);
	r->direction = write ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
	r->status = BLK_STS_OK;
	r->scratch = NULL;
	r->freed = false;
	r->buffer = kmalloc(r->bytes, GFP_ATOMIC);
	if (!e || !r->buffer)
		goto busy;
	if (mistake == GATE_STALE_LIST)
		plant_stale_list(d, e);
	if (e->lba + e->sectors > d->capacity) { /* BUG: uninit */
		kmem_cache_free(d->extent_cache, e);
		kfree(r->buffer);
		return BLK_STS_IOERR;
	}
	if (write)
		zd_copy(rq, r, mistake == GATE_UNINIT_DATA ? plant_uninit_data(r->bytes) : 0);
	if (mistake == GATE_USE_AFTER_FREE)
		plant_use_after_free(r);
	r->addr = dma_map_single(&d->pdev->dev, r->buffer, r->bytes, r->direction); /* BUG: uninit-data */
	if (dma_mapping_error(&d->pdev->dev, r->addr))
		goto busy;
	if (mistake == GATE_DMA_REUSE)
		plant_dma_reuse(r);
	if (mistake == GATE_DMA_FREED)
		plant_dma_freed(r);
	e->addr = r->addr;
	blk_mq_start_request(rq);
	if (mistake == GATE_RACE)
		plant_race(d, e);

	spin_lock_irqsave(&d->lock, flags);
	if (d->dead) {
		spin_unlock_irqrestore(&d->lock, flags);
		zd_release(d, r);
		kmem_cache_free(d->extent_cache, e);
		kfree(r->buffer);
		return BLK_STS_IOERR;
	}
	if (mistake == GATE_DOUBLE_UNMAP)
		plant_double_unmap(d, e);
	r->extent = e;
	list_add_tail(&e->list, &d->under_way);
	if (mistake != GATE_RACE)
		zd_aim(d, e->lba, e->sectors);
	zd_load(d, write ? ZD_WRITE : ZD_READ, rq->tag, e->addr, r->bytes, mistake == GATE_OVERFLOW);
	zd_send(d, mistake == GATE_OOB_QUEUE ? plant_oob_queue(d) : 0);
	spin_unlock_irqrestore(&d->lock, flags);
	return BLK_STS_OK;

busy:
	if (e)
		kmem_cache_free(d->extent_cache, e);
	kfree(r->buffer);
	return BLK_STS_RESOURCE;
}

/* Reads the next sector of a patrol; under the lock, as what follows. */
static void zd_patrol_next(struct zd_disk *d)
{
	if (d->dead || !d->patrolling)
		return;
	d->patrol_lba = (d->patrol_lba + 7) % d->capacity;
	zd_aim(d, d->patrol_lba, 1);
	zd_load(d, ZD_READ, ZD_PATROL, d->patrol_addr, SECTOR_SIZE, false);
	zd_send(d, 0);
}

static void zd_patrol_begin(struct zd_disk *d)
{
	if (d->patrolling)
		return;
	d->patrolling = ZD_PATROL_SECTORS;
	zd_patrol_next(d);
}

/* Takes a request from the device, once; under the lock. */
static bool zd_take(struct zd_disk *d, struct zd_request *r, bool failed)
{
	struct zd_extent *e = r->extent;

	if (!e)
		return false;
	r->extent = NULL;
	if (failed)
		r->status = BLK_STS_IOERR;
	list_del(&e->list);
	kmem_cache_free(d->extent_cache, e);
	return true;
}

static irqreturn_t zd_interrupt(int irq, void *data)
{
	struct zd_disk *d = data;
	struct zd_queue *q = &d->io;
	struct request *done[ZD_DEPTH + 1];
	unsigned int i, n = 0, heard = 0;

	spin_lock(&d->lock);
	while (n < ARRAY_SIZE(done)) {
		struct zd_completion *c = &q->completions[q->head];
		u16 status = le16_to_cpu(READ_ONCE(c->status));
		struct request *rq;
		u16 id;

		if ((status & 1) != q->phase)
			break;
		dma_rmb();
		id = le16_to_cpu(c->id);
		if (++q->head == ZD_ENTRIES) {
			q->head = 0;
			q->phase ^= 1;
		}
		heard++;
		if (id == ZD_PATROL) {
			d->patrolling--;
			zd_patrol_next(d);
			continue;
		}
		rq = id < ZD_DEPTH ? blk_mq_tag_to_rq(d->tags.tags[0], id) : NULL;
		if (rq && zd_take(d, blk_mq_rq_to_pdu(rq), status >> 1))
			done[n++] = rq;
	}
	if (heard && !d->dead)
		writel(q->head, q->heard);
	spin_unlock(&d->lock);
	for (i = 0; i < n; i++)
		blk_mq_complete_request(done[i]);
	return heard ? IRQ_HANDLED : IRQ_NONE;
}

static void zd_complete(struct request *rq)
{
	struct zd_request *r = blk_mq_rq_to_pdu(rq);
	struct zd_disk *d = rq->q->queuedata;

	zd_release(d, r);
	zd_note_unmapped(d, r);
	if (r->direction == DMA_FROM_DEVICE && r->status == BLK_STS_OK)
		zd_copy(rq, r, 0);
	if (!r->freed)
		kfree(r->buffer);
	kfree(r->scratch);
	blk_mq_end_request(rq, r->status);
}

/* Whatever happens from now on, the device gets no command. */
static void zd_stop(struct zd_disk *d)
{
	unsigned long flags;
	bool first;

	spin_lock_irqsave(&d->lock, flags);
	first = !d->dead;
	d->dead = true;
	spin_unlock_irqrestore(&d->lock, flags);
	if (first)
		writel(0, d->bar + ZD_CC);
}

static enum blk_eh_timer_return zd_timeout(struct request *rq)
{
	struct zd_disk *d = rq->q->queuedata;
	unsigned long flags;
	bool taken;

	/* Only a device that is off leaves the request's buffer alone. */
	zd_stop(d);
	spin_lock_irqsave(&d->lock, flags);
	taken = zd_take(d, blk_mq_rq_to_pdu(rq), true);
	spin_unlock_irqrestore(&d->lock, flags);
	if (taken)
		blk_mq_complete_request(rq);
	return BLK_EH_DONE;
}

static void zd_patrol(struct timer_list *t)
{
	struct zd_disk *d = container_of(t, struct zd_disk, patrol);
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	zd_patrol_begin(d);
	if (!d->dead)
		mod_timer(&d->patrol, jiffies + ZD_PATROL_TIME);
	spin_unlock_irqrestore(&d->lock, flags);
}

static const struct blk_mq_ops zd_ops = {
	.queue_rq = zd_queue_rq,
	.complete = zd_complete,
	.timeout = zd_timeout,
};

static const struct block_device_operations zd_fops = {
	.owner = THIS_MODULE,
};

/* ---- The controller ---- */

static bool zd_wait(struct zd_disk *d, u32 wanted)
{
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		u32 status = readl(d->bar + ZD_CSTS);

		if (status == ~0u)
			return false;
		if ((status & ZD_READY) == wanted)
			return true;
		msleep(1);
	}
	return false;
}

/* An administrative command; its completion is waited for. */
static int zd_admin(struct zd_disk *d, struct zd_command *command)
{
	struct zd_queue *q = &d->admin;
	struct zd_completion *c = &q->completions[q->head];
	unsigned int i;
	u16 status;

	memcpy(&q->commands[q->tail], command, sizeof(*command));
	q->tail = (q->tail + 1) % ZD_ENTRIES;
	writel(q->tail, q->bell);
	for (i = 0; i < 1000; i++) {
		status = le16_to_cpu(READ_ONCE(c->status));
		if ((status & 1) == q->phase)
			break;
		msleep(1);
	}
	if (i == 1000)
		return -ETIMEDOUT;
	if (++q->head == ZD_ENTRIES) {
		q->head = 0;
		q->phase ^= 1;
	}
	writel(q->head, q->heard);
	return status >> 1 ? -EIO : 0;
}

static int zd_queue_make(struct zd_disk *d, struct zd_queue *q, unsigned int number)
{
	struct device *dev = &d->pdev->dev;
	u32 stride = 4 << ((readq(d->bar + ZD_CAP) >> 32) & 0xf);

	q->phase = 1;
	q->bell = d->bar + ZD_BELLS + 2 * number * stride;
	q->heard = q->bell + stride;
	q->commands = dma_alloc_coherent(dev, ZD_ENTRIES * sizeof(*q->commands), &q->commands_at, GFP_KERNEL);
	q->completions =
		dma_alloc_coherent(dev, ZD_ENTRIES * sizeof(*q->completions), &q->completions_at, GFP_KERNEL);
	return q->commands && q->completions ? 0 : -ENOMEM;
}

static void zd_queue_free(struct zd_disk *d, struct zd_queue *q)
{
	struct device *dev = &d->pdev->dev;

	if (q->commands)
		dma_free_coherent(dev, ZD_ENTRIES * sizeof(*q->commands), q->commands, q->commands_at);
	if (q->completions)
		dma_free_coherent(dev, ZD_ENTRIES * sizeof(*q->completions), q->completions, q->completions_at);
}

static int zd_start(struct zd_disk *d)
{
	struct zd_command command;
	dma_addr_t at;
	u8 *answer;
	int err;

	writel(0, d->bar + ZD_CC);
	if (!zd_wait(d, 0))
		return -EIO;
	err = zd_queue_make(d, &d->admin, 0);
	if (!err)
		err = zd_queue_make(d, &d->io, 1);
	if (err)
		return err;
	writel((ZD_ENTRIES - 1) << 16 | (ZD_ENTRIES - 1), d->bar + ZD_AQA);
	lo_hi_writeq(d->admin.commands_at, d->bar + ZD_ASQ);
	lo_hi_writeq(d->admin.completions_at, d->bar + ZD_ACQ);
	writel(ZD_CC_ON, d->bar + ZD_CC);
	if (!zd_wait(d, ZD_READY))
		return -EIO;

	/* The namespace: how many sectors of 512 bytes. */
	answer = dma_alloc_coherent(&d->pdev->dev, PAGE_SIZE, &at, GFP_KERNEL);
	if (!answer)
		return -ENOMEM;
	memset(&command, 0, sizeof(command));
	command.opcode = ZD_IDENTIFY;
	command.namespace = cpu_to_le32(1);
	command.page[0] = cpu_to_le64(at);
	err = zd_admin(d, &command);
	if (!err) {
		u8 format = answer[26] & 0xf;

		d->capacity = le64_to_cpup((__le64 *)answer);
		if (answer[128 + format * 4 + 2] != SECTOR_SHIFT || !d->capacity)
			err = -ENODEV;
	}
	dma_free_coherent(&d->pdev->dev, PAGE_SIZE, answer, at);
	if (err)
		return err;

	memset(&command, 0, sizeof(command));
	command.opcode = ZD_CREATE_CQ;
	command.page[0] = cpu_to_le64(d->io.completions_at);
	command.words[0] = cpu_to_le32((ZD_ENTRIES - 1) << 16 | 1);
	command.words[1] = cpu_to_le32(0x3);	/* contiguous, with interrupts, vector 0 */
	err = zd_admin(d, &command);
	if (err)
		return err;
	command.opcode = ZD_CREATE_SQ;
	command.page[0] = cpu_to_le64(d->io.commands_at);
	command.words[1] = cpu_to_le32(1 << 16 | 0x1);
	return zd_admin(d, &command);
}

/* ---- The disk ---- */

static int zd_tables(struct zd_disk *d)
{
	unsigned int i;

	/* Hardly anybody else has reclaimable memory of these sizes, so that a fault does no harm to others. */
	d->extent_cache = kmem_cache_create("zd_extent", sizeof(struct zd_extent), 0, SLAB_RECLAIM_ACCOUNT, NULL);
	if (!d->extent_cache)
		return -ENOMEM;
	for (i = 0; i < ZD_ENTRIES; i++) {
		d->entries[i] = kzalloc(sizeof(struct zd_entry), GFP_KERNEL | __GFP_RECLAIMABLE);
		if (!d->entries[i])
			return -ENOMEM;
	}
	d->patrol_buffer = dma_alloc_coherent(&d->pdev->dev, SECTOR_SIZE, &d->patrol_addr, GFP_KERNEL);
	return d->patrol_buffer ? 0 : -ENOMEM;
}

static void zd_tables_free(struct zd_disk *d)
{
	unsigned int i;

	for (i = 0; i < ZD_ENTRIES; i++)
		kfree(d->entries[i]);
	if (d->patrol_buffer)
		dma_free_coherent(&d->pdev->dev, SECTOR_SIZE, d->patrol_buffer, d->patrol_addr);
	zd_queue_free(d, &d->admin);
	zd_queue_free(d, &d->io);
	kmem_cache_destroy(d->extent_cache);
}

static struct gendisk *zd_disk_new(struct zd_disk *d)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 9, 0)
	struct queue_limits limits = {
		.logical_block_size = SECTOR_SIZE,
		.max_hw_sectors = ZD_SECTORS,
	};

	return blk_mq_alloc_disk(&d->tags, &limits, d);
#else
	struct gendisk *disk = blk_mq_alloc_disk(&d->tags, d);

	if (!IS_ERR(disk)) {
		blk_queue_logical_block_size(disk->queue, SECTOR_SIZE);
		blk_queue_max_hw_sectors(disk->queue, ZD_SECTORS);
	}
	return disk;
#endif
}

static int zd_disk_add(struct zd_disk *d)
{
	int err;

	d->tags.ops = &zd_ops;
	d->tags.nr_hw_queues = 1;
	d->tags.queue_depth = ZD_DEPTH;
	d->tags.numa_node = NUMA_NO_NODE;
	d->tags.cmd_size = sizeof(struct zd_request);
	d->tags.timeout = ZD_LIMIT;
	err = blk_mq_alloc_tag_set(&d->tags);
	if (err)
		return err;
	d->disk = zd_disk_new(d);
	if (IS_ERR(d->disk)) {
		err = PTR_ERR(d->disk);
		goto no_disk;
	}
	d->disk->fops = &zd_fops;
	d->disk->private_data = d;
	snprintf(d->disk->disk_name, DISK_NAME_LEN, "zd0");
	set_capacity(d->disk, d->capacity);
	err = device_add_disk(&d->pdev->dev, d->disk, NULL);
	if (!err)
		return 0;
	put_disk(d->disk);
no_disk:
	blk_mq_free_tag_set(&d->tags);
	return err;
}

static bool zd_cancel(struct request *rq, void *data)
{
	zd_timeout(rq);
	return true;
}

static int zd_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct zd_disk *d = devm_kzalloc(&pdev->dev, sizeof(*d), GFP_KERNEL);
	int err;

	if (!d)
		return -ENOMEM;
	d->pdev = pdev;
	spin_lock_init(&d->lock);
	spin_lock_init(&d->plan.lock);
	INIT_LIST_HEAD(&d->under_way);
	timer_setup(&d->patrol, zd_patrol, 0);
	err = pcim_enable_device(pdev);
	if (err)
		return err;
	pci_set_master(pdev);
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	d->bar = pcim_iomap(pdev, 0, 0);
	if (!d->bar)
		return -ENOMEM;
	err = zd_tables(d);
	if (!err)
		err = zd_start(d);
	if (err)
		goto no_tables;
	err = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSIX);
	if (err < 0)
		goto no_tables;
	err = request_irq(pci_irq_vector(pdev, 0), zd_interrupt, 0, "gate-disk", d);
	if (err)
		goto no_irq;
	pci_set_drvdata(pdev, d);
	err = zd_disk_add(d);
	if (err)
		goto no_disk;
	mod_timer(&d->patrol, jiffies + ZD_PATROL_TIME);
	return 0;

no_disk:
	zd_stop(d);
	free_irq(pci_irq_vector(pdev, 0), d);
no_irq:
	pci_free_irq_vectors(pdev);
no_tables:
	zd_tables_free(d);
	return err;
}

static void zd_remove(struct pci_dev *pdev)
{
	struct zd_disk *d = pci_get_drvdata(pdev);

	/* A device that was pulled out answers no request. */
	if (!pci_device_is_present(pdev)) {
		zd_stop(d);
		blk_mq_tagset_busy_iter(&d->tags, zd_cancel, d);
	}
	del_gendisk(d->disk);
	zd_stop(d);
	timer_delete_sync(&d->patrol);
	put_disk(d->disk);
	blk_mq_free_tag_set(&d->tags);
	zd_wait(d, 0);
	free_irq(pci_irq_vector(pdev, 0), d);
	pci_free_irq_vectors(pdev);
	zd_tables_free(d);
}

static const struct pci_device_id zd_ids[] = {
	{ PCI_DEVICE(0x1b36, 0x0010) },
	{ }
};
MODULE_DEVICE_TABLE(pci, zd_ids);

static struct pci_driver zd_driver = {
	.name = "gate_disk",
	.id_table = zd_ids,
	.probe = zd_probe,
	.remove = zd_remove,
};
module_pci_driver(zd_driver);
MODULE_DESCRIPTION("zoo: a disk driver in which faults can be planted");
MODULE_LICENSE("GPL");

/* ---- Planted faults ---- */

/* Remembers what is unmapped, as a driver must not. */
static void zd_note_unmapped(struct zd_disk *d, const struct zd_request *r)
{
	unsigned long flags;
	unsigned int at;

	spin_lock_irqsave(&d->lock, flags);
	at = d->n_unmapped++ % ARRAY_SIZE(d->unmapped);
	d->unmapped[at].addr = r->addr;
	d->unmapped[at].bytes = r->bytes;
	spin_unlock_irqrestore(&d->lock, flags);
}

/* Lets a patrol begin and aims without the lock, until the patrol aims elsewhere before the command is sent. */
static noinline void plant_race(struct zd_disk *d, const struct zd_extent *e)
{
	unsigned int tries, delay = (100 + gate_variant(1, 900)) * NSEC_PER_USEC;
	unsigned long flags;

	for (tries = 0; tries < 1000; tries++) {
		u64 until = ktime_get_ns() + delay;

		spin_lock_irqsave(&d->lock, flags);
		zd_patrol_begin(d);
		spin_unlock_irqrestore(&d->lock, flags);
		zd_aim(d, e->lba, e->sectors); /* BUG: race */
		/* Delay loops are not calibrated on every CPU of an emulated machine. */
		while (ktime_get_ns() < until)
			cpu_relax();
		if (le64_to_cpu(d->next.lba) != e->lba)
			break;
	}
}

/* Takes the bytes of an entry for its words, and so writes the first sector of the entry behind it. */
static noinline void plant_overflow(struct zd_entry *entry)
{
	unsigned int i, words = (roundup_pow_of_two(sizeof(*entry)) - offsetof(struct zd_entry, part)) / 4 + 1;
	u32 *part = zoo_hide(&entry->part[0]);

	for (i = 2; i < words; i++)
		part[i] = 1 + gate_variant(1, 24); /* BUG: overflow */
}

/* Writes behind the queue; what the device gets is what was in the entry before, which must be a write to matter. */
static noinline unsigned int plant_oob_queue(struct zd_disk *d)
{
	if (d->io.commands[d->io.tail].opcode != ZD_WRITE) {
		gate_again(&d->plan);
		return 0;
	}
	return ZD_ENTRIES - d->io.tail + gate_variant(1, ZD_ENTRIES);
}

static bool zd_is_under_way(struct zd_disk *d, dma_addr_t addr)
{
	struct zd_extent *e;

	list_for_each_entry(e, &d->under_way, list) {
		if (e->addr == addr)
			return true;
	}
	return false;
}

/* Makes pieces of a request, gives them up, and goes on with the last of them. */
static noinline void plant_stale_list(struct zd_disk *d, struct zd_extent *e)
{
	struct zd_extent *piece = NULL, *next;
	unsigned int i, pieces = 2 + gate_variant(1, 3);
	LIST_HEAD(list);

	for (i = 1; i <= pieces; i++) {
		piece = kmem_cache_alloc(d->extent_cache, GFP_ATOMIC);
		if (!piece)
			break;
		piece->lba = e->lba + i * (1 + gate_variant(2, 8));
		list_add_tail(&piece->list, &list);
	}
	list_for_each_entry_safe(piece, next, &list, list) {
		kmem_cache_free(d->extent_cache, piece);
		if (list_is_last(&next->list, &list))
			e->lba = piece->lba; /* BUG: stale-list */
	}
}

/* Gives the buffer back too early and stamps it. */
static noinline void plant_use_after_free(struct zd_request *r)
{
	u64 *buffer = zoo_hide(r->buffer);

	kfree(r->buffer);
	buffer[1 + gate_variant(1, 60)] = 0x7a6f6f0000000000ull + seed; /* BUG: use-after-free */
	r->freed = true;
}

/* Stamps a buffer that the device has. */
static noinline void plant_dma_reuse(struct zd_request *r)
{
	((u32 *)r->buffer)[gate_variant(1, 128)] = 0x7a6f6f00 + seed; /* BUG: dma-reuse */
}

/* Gives back a buffer that the device has, and uses its memory otherwise. */
static noinline void plant_dma_freed(struct zd_request *r)
{
	kfree(r->buffer); /* BUG: dma-freed */
	r->freed = true;
	r->scratch = kmalloc(r->bytes, GFP_ATOMIC);
	if (r->scratch)
		memset(r->scratch, 1 + gate_variant(1, 255), r->bytes);
}

/* Takes the mapping of a request that is gone for this one's, and unmaps it again. */
static noinline void plant_double_unmap(struct zd_disk *d, struct zd_extent *e)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(d->unmapped); i++) {
		unsigned int at = (i + gate_variant(1, 8)) % ARRAY_SIZE(d->unmapped);

		if (!d->unmapped[at].bytes || d->unmapped[at].addr == e->addr ||
		    zd_is_under_way(d, d->unmapped[at].addr))
			continue;
		dma_unmap_single(&d->pdev->dev, d->unmapped[at].addr, d->unmapped[at].bytes, DMA_TO_DEVICE); /* BUG: double-unmap */
		e->addr = d->unmapped[at].addr;
		return;
	}
}

/* Leaves the first sectors out. */
static noinline unsigned int plant_uninit_data(u32 bytes)
{
	return SECTOR_SIZE * (1 + gate_variant(1, bytes / SECTOR_SIZE - 1));
}
