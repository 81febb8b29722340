// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A disk driver for QEMU's NVMe controller, to show that faults are contained: one admin queue, one I/O queue, one
 * request one command, all data through a buffer of the request's own. A patrol reads a sector now and then.
 * Its mistakes are gate.h's, and plant_race().
 */
#include <linux/blk-mq.h>
#include <linux/pci.h>
#include "gate.h"
#include "nvme.h"

#define ZD_DEPTH		16		/* requests at a time */
#define ZD_PATROL		ZD_DEPTH	/* the patrol's command, behind the requests' */
#define ZD_SECTORS		16		/* of a request: two pages */
#define ZD_PATROL_TIME		msecs_to_jiffies(50)
#define ZD_PATROL_SECTORS	8
#define ZD_LIMIT		msecs_to_jiffies(5000)

/* What the driver remembers of each entry of the I/O queue. */
struct zd_entry {
	u64 first;			/* the first sector of the disk */
	struct nvme_command sent;
	unsigned long when;
	u64 page[2];
	u32 part[2];			/* sectors in each page */
};

/* Where a request under way goes. */
struct zd_extent {
	struct gate_piece piece;	/* its value is the first sector */
	u32 sectors;
};

/* A request of the block layer's; the owner of the request owns it. */
struct zd_request {
	struct zd_extent *extent;	/* while the device has it; under the lock */
	struct gate_buffer buffer;
	enum dma_data_direction direction;
	blk_status_t status;
};

struct zd_disk {
	struct zoo_nvme nvme;
	struct blk_mq_tag_set tags;
	struct gendisk *disk;
	struct kmem_cache *extent_cache;
	struct zd_entry *entries[GATE_ENTRIES];
	void *patrol_buffer;
	dma_addr_t patrol_addr;
	struct timer_list patrol;

	spinlock_t lock;		/* guards what follows, the I/O queue and its entries */
	struct nvme_command next;		/* the command that is being built */
	u64 patrol_lba;
	unsigned int patrolling;	/* sectors that are still to be read */
	bool dead;
	struct gate_plan plan;
};

/* ---- Commands, under the lock ---- */

/* Where the next command goes. */
static noinline void zd_aim(struct zd_disk *d, u64 lba, u32 sectors)
{
	d->next.rw.slba = cpu_to_le64(lba);
	d->next.rw.length = cpu_to_le16(sectors - 1);
}

/* What it does there, with which memory. */
static noinline void zd_load(struct zd_disk *d, u8 opcode, u16 id, dma_addr_t addr, u32 bytes, bool overflow)
{
	struct zd_entry *entry = d->entries[d->nvme.io.tail];
	unsigned int i, pages = bytes > PAGE_SIZE ? 2 : 1;

	for (i = 0; i < pages; i++) {
		entry->page[i] = addr + i * PAGE_SIZE;
		entry->part[i] = min_t(u32, bytes - i * PAGE_SIZE, PAGE_SIZE) / SECTOR_SIZE;
	}
	if (overflow)
		plant_overflow(entry->part, sizeof(*entry), 24);
	d->next.rw.opcode = opcode;
	d->next.rw.flags = 0;
	d->next.rw.command_id = id;
	d->next.rw.nsid = cpu_to_le32(1);
	d->next.rw.dptr.prp1 = cpu_to_le64(entry->page[0]);
	d->next.rw.dptr.prp2 = pages == 2 ? cpu_to_le64(entry->page[1]) : 0;
	d->next.rw.slba = cpu_to_le64(entry->first + le64_to_cpu(d->next.rw.slba));
}

/* Sends it. */
static noinline void zd_send(struct zd_disk *d, unsigned int beyond)
{
	struct zoo_nvme_queue *q = &d->nvme.io;

	d->entries[q->tail]->sent = d->next;
	d->entries[q->tail]->when = jiffies;
	memcpy(&q->commands[q->tail + beyond], &d->next, sizeof(d->next)); /* BUG: oob-queue */
	q->tail = (q->tail + 1) % GATE_ENTRIES;
	writel(q->tail, q->bell);
}

/* ---- Requests ---- */

static noinline struct zd_extent *zd_extent_of(struct zd_disk *d, struct request *rq, enum gate_fault mistake)
{
	struct zd_extent *e = kmem_cache_alloc(d->extent_cache, GFP_ATOMIC);

	if (!e)
		return NULL;
	if (mistake != GATE_UNINIT)
		e->piece.value = blk_rq_pos(rq);
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
			memcpy(r->buffer.data + at + left_out, data + left_out, bv.bv_len - left_out);
		else
			memcpy(data, r->buffer.data + at, bv.bv_len);
		kunmap_local(data);
		at += bv.bv_len;
	}
}

static void zd_release(struct zd_disk *d, struct zd_request *r)
{
	unsigned long flags;

	spin_lock_irqsave(&d->lock, flags);
	dma_unmap_single(&d->nvme.pdev->dev, r->buffer.addr, r->buffer.bytes, r->direction);
	gate_note_unmapped(&d->plan, &r->buffer);
	spin_unlock_irqrestore(&d->lock, flags);
}

/* Reads the next sector of a patrol; under the lock, as what follows. */
static void zd_patrol_next(struct zd_disk *d)
{
	if (d->dead || !d->patrolling)
		return;
	d->patrol_lba = (d->patrol_lba + 7) % d->nvme.capacity;
	zd_aim(d, d->patrol_lba, 1);
	zd_load(d, nvme_cmd_read, ZD_PATROL, d->patrol_addr, SECTOR_SIZE, false);
	zd_send(d, 0);
}

static void zd_patrol_begin(struct zd_disk *d)
{
	if (d->patrolling)
		return;
	d->patrolling = ZD_PATROL_SECTORS;
	zd_patrol_next(d);
}

/* Lets a patrol begin and aims without the lock, until the patrol aims elsewhere before the command is sent. */
static noinline void plant_race(struct zd_disk *d, const struct zd_extent *e)
{
	unsigned int tries;
	unsigned long flags;

	for (tries = 0; tries < 1000; tries++) {
		spin_lock_irqsave(&d->lock, flags);
		zd_patrol_begin(d);
		spin_unlock_irqrestore(&d->lock, flags);
		zd_aim(d, e->piece.value, e->sectors); /* BUG: race */
		gate_linger();
		if (le64_to_cpu(d->next.rw.slba) != e->piece.value)
			break;
	}
}

/* Hands a mapped request to the device, unless it is dead. */
static bool zd_submit(struct zd_disk *d, struct request *rq, struct zd_extent *e, enum gate_fault mistake)
{
	struct zd_request *r = blk_mq_rq_to_pdu(rq);
	struct zoo_nvme_queue *q = &d->nvme.io;
	unsigned int beyond = 0;
	unsigned long flags;
	bool dead;

	spin_lock_irqsave(&d->lock, flags);
	dead = d->dead;
	if (dead)
		goto out;
	if (mistake == GATE_DOUBLE_UNMAP)
		e->piece.addr = plant_double_unmap(&d->plan, &d->nvme.pdev->dev, e->piece.addr);
	r->extent = e;
	if (mistake != GATE_RACE)
		zd_aim(d, e->piece.value, e->sectors);
	zd_load(d, r->direction == DMA_TO_DEVICE ? nvme_cmd_write : nvme_cmd_read, rq->tag, e->piece.addr,
		r->buffer.bytes, mistake == GATE_OVERFLOW);
	/* To read again would harm nobody. */
	if (mistake == GATE_OOB_QUEUE)
		beyond = plant_oob_queue(&d->plan, q->tail, q->commands[q->tail].rw.opcode == nvme_cmd_write);
	zd_send(d, beyond);
out:
	spin_unlock_irqrestore(&d->lock, flags);
	return !dead;
}

static blk_status_t zd_queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *bd)
{
	struct zd_disk *d = hctx->queue->queuedata;
	struct request *rq = bd->rq;
	struct zd_request *r = blk_mq_rq_to_pdu(rq);
	struct gate_buffer *b = &r->buffer;
	bool write = req_op(rq) == REQ_OP_WRITE;
	enum gate_fault mistake = write ? gate_next(&d->plan) : GATE_NONE;
	blk_status_t status = BLK_STS_RESOURCE;
	unsigned int skip = 0;
	struct zd_extent *e;
	unsigned long flags;
	bool mapped;

	if (!write && req_op(rq) != REQ_OP_READ)
		return BLK_STS_NOTSUPP;
	e = zd_extent_of(d, rq, mistake);
	r->direction = write ? DMA_TO_DEVICE : DMA_FROM_DEVICE;
	r->status = BLK_STS_OK;
	if (!gate_buffer_make(b, blk_rq_bytes(rq)) || !e)
		goto failed;
	if (mistake == GATE_STALE_LIST)
		e->piece.value = plant_stale_list(d->extent_cache, e->piece.value, 1 + gate_variant(2, 8));
	if (e->piece.value + e->sectors > d->nvme.capacity) { /* BUG: uninit */
		status = BLK_STS_IOERR;
		goto failed;
	}
	if (mistake == GATE_UNINIT_DATA)
		skip = SECTOR_SIZE * (1 + gate_variant(1, b->bytes / SECTOR_SIZE - 1));
	if (write)
		zd_copy(rq, r, skip);
	if (mistake == GATE_USE_AFTER_FREE)
		plant_use_after_free(b, 2 + 2 * gate_variant(1, 60));
	spin_lock_irqsave(&d->lock, flags);
	b->addr = dma_map_single(&d->nvme.pdev->dev, b->data, b->bytes, r->direction); /* BUG: uninit-data */
	mapped = !dma_mapping_error(&d->nvme.pdev->dev, b->addr);
	if (mapped)
		gate_note_mapped(&d->plan, b);
	spin_unlock_irqrestore(&d->lock, flags);
	if (!mapped)
		goto failed;
	if (mistake == GATE_DMA_REUSE)
		plant_dma_reuse(b, gate_variant(1, 128));
	if (mistake == GATE_DMA_FREED)
		plant_dma_freed(b);
	e->piece.addr = b->addr;
	blk_mq_start_request(rq);
	if (mistake == GATE_RACE)
		plant_race(d, e);
	if (zd_submit(d, rq, e, mistake))
		return BLK_STS_OK;
	zd_release(d, r);
	status = BLK_STS_IOERR;
failed:
	if (e)
		kmem_cache_free(d->extent_cache, e);
	gate_buffer_free(b);
	return status;
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
	kmem_cache_free(d->extent_cache, e);
	return true;
}

static irqreturn_t zd_interrupt(int irq, void *data)
{
	struct zd_disk *d = data;
	struct zoo_nvme_queue *q = &d->nvme.io;
	struct request *done[ZD_DEPTH + 1];
	unsigned int i, n = 0, heard = 0;

	spin_lock(&d->lock);
	while (n < ARRAY_SIZE(done)) {
		struct nvme_completion *c = &q->completions[q->head];
		u16 status = le16_to_cpu(READ_ONCE(c->status));
		struct request *rq;
		u16 id;

		if ((status & 1) != q->phase)
			break;
		dma_rmb();
		id = c->command_id;
		if (++q->head == GATE_ENTRIES) {
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
	if (r->direction == DMA_FROM_DEVICE && r->status == BLK_STS_OK)
		zd_copy(rq, r, 0);
	gate_buffer_free(&r->buffer);
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
		writel(0, d->nvme.bar + NVME_REG_CC);
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

/* ---- The disk ---- */

static int zd_tables(struct zd_disk *d)
{
	d->extent_cache = gate_cache("zd_extent", sizeof(struct zd_extent));
	if (!d->extent_cache || gate_entries_make((void **)d->entries, sizeof(struct zd_entry)))
		return -ENOMEM;
	d->patrol_buffer = dma_alloc_coherent(&d->nvme.pdev->dev, SECTOR_SIZE, &d->patrol_addr, GFP_KERNEL);
	return d->patrol_buffer ? 0 : -ENOMEM;
}

static void zd_tables_free(struct zd_disk *d)
{
	gate_entries_free((void **)d->entries);
	if (d->patrol_buffer)
		dma_free_coherent(&d->nvme.pdev->dev, SECTOR_SIZE, d->patrol_buffer, d->patrol_addr);
	zoo_nvme_free(&d->nvme);
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
	set_capacity(d->disk, d->nvme.capacity);
	err = device_add_disk(&d->nvme.pdev->dev, d->disk, NULL);
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
	d->nvme.pdev = pdev;
	spin_lock_init(&d->lock);
	gate_plan_init(&d->plan);
	timer_setup(&d->patrol, zd_patrol, 0);
	err = pcim_enable_device(pdev);
	if (err)
		return err;
	pci_set_master(pdev);
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	d->nvme.bar = pcim_iomap(pdev, 0, 0);
	if (!d->nvme.bar)
		return -ENOMEM;
	err = zd_tables(d);
	if (!err)
		err = zoo_nvme_start(&d->nvme, GATE_ENTRIES);
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
	zoo_nvme_wait(&d->nvme, 0);
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
