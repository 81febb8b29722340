// SPDX-License-Identifier: GPL-2.0-or-later
/* Devices of virtio. */
#include <linux/virtio.h>

#include "border/custom.h"

/* A driver that refused its device keeps no fields of it. */
GUARDRAIL_CUSTOM(virtio_probed)
{
	unsigned long p = object_of(action, call);

	if (p && (int)call->result < 0)
		guardrail_revoke(action->domain, p, sizeof(struct virtio_device));
	return 0;
}
