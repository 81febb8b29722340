// SPDX-License-Identifier: GPL-2.0-or-later
/* The classes that take part in recoveries. */
#include "classes/classes.h"

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
}
