// SPDX-License-Identifier: GPL-2.0-or-later
/* Drivers of USB devices: their requests, and what they receive. */
#include <linux/usb.h>

#include "base/address.h"
#include "base/symbols.h"
#include "border/custom.h"
#include "classes/classes.h"
#include "report/report.h"
#include "rights/memory.h"
#include "rights/ranges.h"
#include "transact/requests.h"

/* True where the caller holds the last reference to a request that lies in memory of its own. */
static bool is_last(const struct urb *urb)
{
	unsigned long references;

	return is_kernel_range((unsigned long)urb, sizeof(*urb)) && load_word((unsigned long)&urb->kref, &references) &&
	       (u32)references == 1;
}

static void urb_lost(u32 domain, const struct urb *urb)
{
	guardrail_take(domain, (unsigned long)urb->iso_frame_desc, KIND_PRIVATE);
	guardrail_revoke(domain, (unsigned long)urb, sizeof(*urb));
}

/* usb_alloc_urb(packets): the results of the packets of an isochronous request are behind it. */
GUARDRAIL_CUSTOM(urb_allocated)
{
	struct urb *urb = (struct urb *)object_of(action, call);
	int packets = (int)call->args[0];

	if (!urb || packets <= 0)
		return 0;
	return guardrail_give(action->domain, (unsigned long)urb->iso_frame_desc,
			      packets * sizeof(urb->iso_frame_desc[0]), KIND_PRIVATE);
}

/*
 * A reference to a request is dropped, or the request is complete. With the last reference it is freed: that of the driver,
 * or that of the kernel if the driver has dropped its own.
 */
GUARDRAIL_CUSTOM(urb_dropped)
{
	struct urb *urb = (struct urb *)object_of(action, call);

	if (urb && is_last(urb))
		urb_lost(action->domain, urb);
	return 0;
}

/*
 * usb_control_msg(device, pipe, request, type, value, index, data, size) and usb_bulk_msg(device, pipe, data, size):
 * what the device sends, the driver must be allowed to write.
 */
GUARDRAIL_CUSTOM(usb_received)
{
	unsigned long p = object_of(action, call), size = size_of(action, call);

	if (p && size && usb_pipein((unsigned int)call->args[1]))
		guardrail_require_write(action, call, p, size);
	return 0;
}

static bool is_under_way(unsigned long request)
{
	return atomic_read(&((struct urb *)request)->use_count);
}

static void end(unsigned long request)
{
	void (*kill)(struct urb *urb) = (void *)guardrail_find_symbol("usb_kill_urb");

	if (kill)
		kill((struct urb *)request);
}

/* The driver may have dropped its own reference meanwhile. */
static void drop(u32 domain, unsigned long request)
{
	struct urb *urb = (struct urb *)request;
	void (*put)(struct urb *urb);

	if (refcount_dec_not_one(&urb->kref.refcount))
		return;
	urb_lost(domain, urb);
	put = (void *)guardrail_find_symbol("usb_free_urb");
	if (put)
		put(urb);
}

static const struct guardrail_requests urbs = { .by = "usb_submit_urb", .is_under_way = is_under_way, .end = end, .drop = drop };

void __init guardrail_usb_device_register(void)
{
	guardrail_requests_register(&urbs);
}

/* usb_submit_urb(urb) is about to be called in a transaction, which holds the request until it is over. */
GUARDRAIL_CUSTOM(transact_request)
{
	struct urb *urb = (struct urb *)object_of(action, call);
	struct guardrail_transaction *tx = guardrail_transaction();
	unsigned long references;

	if (!tx || tx->irrevocable || !urb || !is_kernel_range((unsigned long)urb, sizeof(*urb)) ||
	    !load_word((unsigned long)&urb->kref, &references))
		return 0;
	/* A request in the driver's own memory does not stay by a reference. */
	if (guardrail_first_denied(tx->domain, (unsigned long)urb, sizeof(*urb)) == (unsigned long)(urb + 1)) {
		guardrail_transact_irrevocable(tx, "whose request lies in the driver's own memory", action->function);
		return 0;
	}
	if (guardrail_requests_add(tx, (unsigned long)urb))
		kref_get(&urb->kref);
	return 0;
}
