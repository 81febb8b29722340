/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Declarations that the files of network devices share: net.c, net_setup.c and net_teardown.c. */
#ifndef GUARDRAIL_CLASSES_NET_H
#define GUARDRAIL_CLASSES_NET_H

#include <linux/netdevice.h>

#include "recovery/class.h"

/**
 * guardrail_netdev_comes() - Give a network device that is about to be registered the name and number of the lost one.
 * @dev: The device.
 *
 * Context: Process.
 */
void guardrail_netdev_comes(struct net_device *dev);

/**
 * guardrail_net_silence() - Detach the network devices of a domain.
 * @domain: The domain.
 *
 * The kernel offers a refused packet again and again while the queue is not stopped. It waits for
 * the end of that when it closes the device.
 *
 * Context: Process.
 */
void guardrail_net_silence(u32 domain);

/**
 * guardrail_net_entry_over() - Complete a poll that was refused.
 * @record: Record of an entry that was refused or ended; ignored if it was no poll.
 * @ended: It was ended.
 *
 * Context: That of the entry.
 */
void guardrail_net_entry_over(struct guardrail_record *record, bool ended);

/**
 * guardrail_net_settle() - Complete polls that were ended while their instance was scheduled.
 * @domain: The domain, which is dead.
 *
 * The instances are not scheduled any more.
 *
 * Context: Process. May wait for two grace periods.
 */
void guardrail_net_settle(u32 domain);

/**
 * guardrail_net_unregister() - Unregister a network device.
 * @held: What the domain holds; ignored if it is no registered network device.
 * @down: The teardown.
 *
 * Context: Process.
 */
void guardrail_net_unregister(const struct guardrail_held *held, struct guardrail_teardown *down);

/**
 * guardrail_net_end_use() - Disable a NAPI instance when its poll has ended.
 * @held: What the domain holds; ignored if it is no enabled NAPI instance.
 * @down: The teardown.
 *
 * Context: Process.
 */
void guardrail_net_end_use(const struct guardrail_held *held, struct guardrail_teardown *down);

/**
 * guardrail_net_release() - Release a packet or an unregistered network device.
 * @held: An object of the domain; ignored if it is neither.
 * @down: The teardown.
 *
 * Context: Process.
 */
void guardrail_net_release(const struct guardrail_held *held, struct guardrail_teardown *down);

/**
 * guardrail_net_free() - Free a packet.
 * @held: An object that a teardown noted for later.
 *
 * Context: Process.
 * Return: False where it is no packet.
 */
bool guardrail_net_free(const struct guardrail_held *held);

struct sk_buff;

/**
 * guardrail_unbuild() - Undo that an entry has built a packet around a buffer: the buffer is the driver's again.
 * @skb: The packet, as it was built.
 * @owned: The buffer was allocated as one. Else it is a part of a page that the driver has.
 *
 * Tables of transactions do not name this function: the border logs it where a packet is built.
 *
 * Context: That of the entry, which is being undone.
 */
void guardrail_unbuild(struct sk_buff *skb, bool owned);

#endif /* GUARDRAIL_CLASSES_NET_H */
