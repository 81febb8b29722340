/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Registration of the classes that take part in recoveries. */
#ifndef GUARDRAIL_CLASSES_CLASSES_H
#define GUARDRAIL_CLASSES_CLASSES_H

#include <linux/init.h>
#include <linux/types.h>

/**
 * guardrail_classes_register() - Register all classes, in the order that a recovery visits them in.
 */
void __init guardrail_classes_register(void);

/**
 * guardrail_may_store() - Test whether a store goes to what is the domain's by what the kernel knows of it now.
 * @domain: Domain that stores.
 * @addr: First byte.
 * @n: Number of bytes.
 *
 * Context: Any but NMI.
 * Return: True where it does.
 */
bool guardrail_may_store(u32 domain, unsigned long addr, unsigned long n);

/**
 * guardrail_misc_register() - Register character devices.
 */
void __init guardrail_misc_register(void);

/**
 * guardrail_net_register() - Register network devices.
 */
void __init guardrail_net_register(void);

/**
 * guardrail_scsi_register() - Register SCSI hosts.
 */
void __init guardrail_scsi_register(void);

/**
 * guardrail_fs_register() - Register file systems.
 */
void __init guardrail_fs_register(void);

/**
 * guardrail_slab_register() - Register slab caches.
 */
void __init guardrail_slab_register(void);

/**
 * guardrail_virtio_register() - Register devices of virtio.
 */
void __init guardrail_virtio_register(void);

/**
 * guardrail_usb_register() - Register host controllers of USB.
 */
void __init guardrail_usb_register(void);

/**
 * guardrail_usb_device_register() - Register the requests of drivers of USB devices.
 */
void __init guardrail_usb_device_register(void);

/**
 * guardrail_sound_register() - Register sound cards.
 */
void __init guardrail_sound_register(void);

#endif /* GUARDRAIL_CLASSES_CLASSES_H */
