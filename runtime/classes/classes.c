// SPDX-License-Identifier: GPL-2.0-or-later
/* The classes that take part in recoveries. */
#include "classes/classes.h"
#include "classes/fs_cache.h"
#include "classes/rhash.h"
#include "rights/sent.h"

void __init guardrail_classes_register(void)
{
	guardrail_misc_register();
	guardrail_net_register();
	/*
	 * Commands of file systems wait in hosts, so the hosts are parked first and receive their
	 * drivers first.
	 */
	guardrail_scsi_register();
	guardrail_fs_register();
	guardrail_slab_register();
	guardrail_virtio_register();
	guardrail_usb_register();
	guardrail_usb_device_register();
	guardrail_sound_register();
}

bool guardrail_may_store(u32 domain, unsigned long addr, unsigned long n)
{
	return guardrail_is_fs_cache(domain, addr, n) || guardrail_is_bucket(domain, addr, n) || guardrail_sent_store(domain, addr, n);
}
