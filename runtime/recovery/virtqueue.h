/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Buffers in queues of virtio devices, where calls that moved them are undone. The queue itself is not changed back: it is
 * the kernel's, and is deleted before the device is restored. What the driver takes back from it before that is changed.
 */
#ifndef GUARDRAIL_RECOVERY_VIRTQUEUE_H
#define GUARDRAIL_RECOVERY_VIRTQUEUE_H

#include <linux/virtio.h>

/**
 * guardrail_virtqueue_unadd() - Undo that an entry has added a buffer to a queue: its driver is not to get it back.
 * @vq: The queue, which is stopped.
 * @buffer: The buffer, as the driver names it.
 *
 * Transactions call it by its name. Without memory, the domain of the entry is killed.
 *
 * Context: Any but NMI, in a thread or an interrupt that has the entry.
 */
void guardrail_virtqueue_unadd(struct virtqueue *vq, void *buffer);

/**
 * guardrail_virtqueue_unget() - Undo that an entry has taken a buffer from a queue: its driver is to get it back.
 * @vq: The queue, which is stopped.
 * @buffer: The buffer.
 *
 * Transactions call it by its name. Without memory, the domain of the entry is killed.
 *
 * Context: Any but NMI, in a thread or an interrupt that has the entry.
 */
void guardrail_virtqueue_unget(struct virtqueue *vq, void *buffer);

/**
 * guardrail_virtqueue_stop() - Have a device reach no memory, and its queues take and give no buffers, until it has new ones.
 * @virtio: The device.
 *
 * Context: Any but NMI.
 */
void guardrail_virtqueue_stop(struct virtio_device *virtio);

/**
 * guardrail_virtqueue_over() - Have a device reach memory again that has no queues any more, and forget what was undone in them.
 * @virtio: The device.
 *
 * Context: Process.
 */
void guardrail_virtqueue_over(struct virtio_device *virtio);

#endif /* GUARDRAIL_RECOVERY_VIRTQUEUE_H */
