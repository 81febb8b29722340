// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Buffers in queues of virtio devices; recovery/virtqueue.h describes it.
 *
 * After a rollback, a queue and the memory of its driver differ. A buffer that was added is in the queue, though it is freed
 * or the caller's again; one that was taken is not there, though it is nobody else's. The driver frees what it gets back from
 * its queues when the device is saved. There the first is left out, and the second is added.
 */
#include <linux/pci.h>
#include <linux/slab.h>

#include "base/symbols.h"
#include "border/custom.h"
#include "recovery/recover.h"
#include "recovery/virtqueue.h"

/**
 * struct moved - A buffer that the driver sees elsewhere than its queue does.
 * @list: Place among all.
 * @virtio: The queue's device.
 * @vq: The queue.
 * @buffer: The buffer.
 * @has: The driver sees it in the queue.
 */
struct moved {
	struct list_head list;
	const struct virtio_device *virtio;
	const struct virtqueue *vq;
	void *buffer;
	bool has;
};

static LIST_HEAD(all);
/* Protects the list. Taken in any context but NMI; nothing nests inside. */
static DEFINE_RAW_SPINLOCK(all_lock);

/* Takes a buffer off the list, or any of the queue where none is named. Returns it, or NULL. */
static void *take(const struct virtqueue *vq, const void *buffer, bool has)
{
	struct moved *moved, *found = NULL;
	unsigned long flags;
	void *taken;

	raw_spin_lock_irqsave(&all_lock, flags);
	list_for_each_entry(moved, &all, list) {
		if (moved->vq == vq && moved->has == has && (!buffer || moved->buffer == buffer)) {
			found = moved;
			list_del(&moved->list);
			break;
		}
	}
	raw_spin_unlock_irqrestore(&all_lock, flags);
	if (!found)
		return NULL;
	taken = found->buffer;
	kfree(found);
	return taken;
}

static void move(const struct virtqueue *vq, void *buffer, bool has)
{
	struct moved *moved;
	unsigned long flags;

	/* What is undone is a call of which the opposite was undone before. */
	if (take(vq, buffer, !has))
		return;
	moved = kmalloc(sizeof(*moved), GFP_ATOMIC | __GFP_NOWARN);
	if (!moved) {
		guardrail_recover(guardrail_innermost_domain(), "no memory is left to note what its queues have");
		return;
	}
	*moved = (struct moved){ .virtio = vq->vdev, .vq = vq, .buffer = buffer, .has = has };
	raw_spin_lock_irqsave(&all_lock, flags);
	list_add_tail(&moved->list, &all);
	raw_spin_unlock_irqrestore(&all_lock, flags);
}

void guardrail_virtqueue_unadd(struct virtqueue *vq, void *buffer)
{
	move(vq, buffer, false);
}

void guardrail_virtqueue_unget(struct virtqueue *vq, void *buffer)
{
	move(vq, buffer, true);
}

/* virtqueue_detach_unused_buf(vq): the driver takes a buffer back from a queue that its device does not use any more. */
GUARDRAIL_CUSTOM(virtqueue_detach)
{
	struct virtqueue *vq = (struct virtqueue *)object_of(action, call);
	void *(*detach)(struct virtqueue *vq);
	void *buffer;

	if (!vq || list_empty(&all))
		return 0;
	detach = (void *)guardrail_find_symbol("virtqueue_detach_unused_buf");
	if (!detach)
		return 0;
	do
		buffer = detach(vq);
	while (buffer && take(vq, buffer, false));
	call->result = (unsigned long)(buffer ?: take(vq, NULL, true));
	return 1;
}

void guardrail_virtqueue_stop(struct virtio_device *virtio)
{
	void (*break_queue)(struct virtqueue *vq) = (void *)guardrail_find_symbol("__virtqueue_break");
	struct device *parent = virtio->dev.parent;
	struct virtqueue *vq;

	if (parent && dev_is_pci(parent))
		pci_clear_master(to_pci_dev(parent));
	/* Who holds the lock creates or deletes queues; if it is what was interrupted here, it never releases it. */
	if (!break_queue || !spin_trylock(&virtio->vqs_list_lock))
		return;
	list_for_each_entry(vq, &virtio->vqs, list)
		break_queue(vq);
	spin_unlock(&virtio->vqs_list_lock);
}

void guardrail_virtqueue_over(struct virtio_device *virtio)
{
	struct device *parent = virtio->dev.parent;
	struct moved *moved, *next;
	LIST_HEAD(over);

	raw_spin_lock_irq(&all_lock);
	list_for_each_entry_safe(moved, next, &all, list)
		if (moved->virtio == virtio)
			list_move(&moved->list, &over);
	raw_spin_unlock_irq(&all_lock);
	list_for_each_entry_safe(moved, next, &over, list)
		kfree(moved);
	if (parent && dev_is_pci(parent))
		pci_set_master(to_pci_dev(parent));
}
