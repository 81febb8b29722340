/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Teardown: taking everything back from a dead domain, without any of its code. */
#ifndef GUARDRAIL_RECOVERY_TEARDOWN_H
#define GUARDRAIL_RECOVERY_TEARDOWN_H

#include <linux/list.h>
#include <linux/pci.h>

#include "domain/module.h"

/* The most devices of a driver. */
#define MAX_DEVICES 32

/**
 * struct guardrail_released - How much a teardown released, by kind.
 * @timers: Timers.
 * @works: Work.
 * @irqs: Interrupts.
 * @devices: PCI devices.
 * @netdevs: Network devices.
 * @miscdevices: Character devices.
 * @packets: Packets.
 * @mappings: Mappings of registers.
 * @allocations: Allocations.
 * @left: Allocations that nothing here can release.
 */
struct guardrail_released {
	unsigned int timers, works, irqs, devices, netdevs, miscdevices, packets, mappings, allocations;
	unsigned int left;
};

/**
 * struct guardrail_late - Memory that is released when no device writes to it any more.
 * @memory: Pieces of memory.
 * @devices: Devices of the domain's drivers; each is held.
 * @n_devices: How many there are.
 * @domain: The domain.
 * @forever: No driver will be loaded for the devices.
 * @kept: The kernel continues to use some of the memory.
 *
 * A device that may not reach memory any more still has its orders. The new driver lets it reach
 * memory before it resets it. Until then the memory must not be used for anything else.
 */
struct guardrail_late {
	struct list_head memory;
	struct pci_dev *devices[MAX_DEVICES];
	unsigned int n_devices;
	u32 domain;
	bool forever;
	bool kept;
};

/**
 * struct guardrail_teardown - A teardown under way.
 * @domain: The domain.
 * @modules: Its modules.
 * @released: Gets what was released.
 * @late: Gets what is to be released later.
 */
struct guardrail_teardown {
	u32 domain;
	const struct guardrail_modules *modules;
	struct guardrail_released *released;
	struct guardrail_late *late;
};

/**
 * guardrail_teardown() - Take everything from a dead domain in which no thread is.
 * @domain: The domain.
 * @modules: Its modules.
 * @forever: They are not loaded anew.
 * @released: Gets what was released.
 * @late: Gets what guardrail_release_late() is to release.
 *
 * Context: Process, with teardown_lock held.
 * Return: False where the kernel continues to use what the domain has registered. Then its memory is not released.
 */
bool guardrail_teardown(u32 domain, const struct guardrail_modules *modules, bool forever,
			struct guardrail_released *released, struct guardrail_late *late);

/**
 * guardrail_release_later() - Note something that a teardown releases later.
 * @down: The teardown.
 * @held: What is to be released.
 *
 * Context: Process.
 * Return: False where there is no memory for the note, and it is lost.
 */
bool guardrail_release_later(struct guardrail_teardown *down, const struct guardrail_held *held);

/**
 * guardrail_release_late() - Release what a teardown left for later.
 * @late: What it left. The devices were reset by their driver, or have none and do not reach memory.
 *
 * Context: Process.
 */
void guardrail_release_late(struct guardrail_late *late);

/**
 * guardrail_silence() - Stop the devices of a dead domain, and what the kernel would start with it.
 * @domain: The domain.
 * @modules: Its modules.
 *
 * Context: Process, with teardown_lock held.
 */
void guardrail_silence(u32 domain, const struct guardrail_modules *modules);

#endif /* GUARDRAIL_RECOVERY_TEARDOWN_H */
