// SPDX-License-Identifier: GPL-2.0-or-later
/* USB host controllers: the driver's part of a host, and the memory of requests. */
#include <linux/module.h>
#include <linux/usb.h>
#include <linux/usb/ch11.h>
#include <linux/usb/hcd.h>

#include "base/symbols.h"
#include "border/custom.h"
#include "classes/classes.h"
#include "domain/code.h"
#include "domain/entry.h"
#include "recovery/class.h"
#include "rights/memory.h"

/* The driver may write its own part of a host while the host exists, and registers that the kernel has mapped for it. */
GUARDRAIL_CUSTOM(hcd_new)
{
	struct usb_hcd *hcd = (struct usb_hcd *)object_of(action, call);

	int err = 0;

	if (!hcd)
		return 0;
	if (hcd->driver->hcd_priv_size)
		err = guardrail_grant(action->domain, (unsigned long)hcd->hcd_priv, hcd->driver->hcd_priv_size);
	if (hcd->regs)
		err = err ?: guardrail_give(action->domain, (unsigned long)hcd->regs, hcd->rsrc_len, KIND_PRIVATE);
	return err;
}

GUARDRAIL_CUSTOM(hcd_gone)
{
	struct usb_hcd *hcd = (struct usb_hcd *)object_of(action, call);

	/* Where the driver calls its own function, more may follow. */
	if (!hcd || guardrail_is_guarded(call->caller))
		return 0;
	guardrail_revoke(action->domain, (unsigned long)hcd, sizeof(*hcd) + hcd->driver->hcd_priv_size);
	/* A second host of the device uses the same registers. */
	if (!hcd->primary_hcd || hcd->primary_hcd == hcd)
		guardrail_take(action->domain, (unsigned long)hcd->regs, KIND_PRIVATE);
	return 0;
}

/* An endpoint is disabled; the first one, which all devices have, is freed with its device. */
GUARDRAIL_CUSTOM(endpoint_gone)
{
	struct usb_host_endpoint *ep = (struct usb_host_endpoint *)object_of(action, call);
	struct usb_device *dev;

	if (!ep || usb_endpoint_num(&ep->desc))
		return 0;
	dev = container_of(ep, struct usb_device, ep0);
	guardrail_revoke(action->domain, (unsigned long)dev->toggle, sizeof(dev->toggle));
	return 0;
}

/* Inlined code of drivers sets a variable of usbcore. Later kernels have none. */
GUARDRAIL_CUSTOM(usb_loaded)
{
	unsigned long *loaded = __symbol_get("usb_hcds_loaded");
	int err;

	if (!loaded)
		return 0;
	err = guardrail_grant(action->domain, (unsigned long)loaded, sizeof(*loaded));
	/* The driver needs usbcore, so usbcore stays loaded. */
	__symbol_put("usb_hcds_loaded");
	return err;
}

/* The results of the packets of an isochronous request are behind it. */
GUARDRAIL_CUSTOM(urb_new)
{
	struct urb *urb = (struct urb *)object_of(action, call);

	if (!urb || urb->number_of_packets <= 0)
		return 0;
	return guardrail_grant_fresh(action->domain, (unsigned long)urb->iso_frame_desc,
				   urb->number_of_packets * sizeof(urb->iso_frame_desc[0]));
}

static void urb_gone(u32 domain, struct urb *urb)
{
	int packets = max(urb->number_of_packets, 0);

	guardrail_revoke(domain, (unsigned long)urb, sizeof(*urb) + packets * sizeof(urb->iso_frame_desc[0]));
}

/* The driver has completed a request. */
GUARDRAIL_CUSTOM(urb_done)
{
	struct urb *urb = (struct urb *)object_of(action, call);

	if (urb)
		urb_gone(action->domain, urb);
	return 0;
}

/* Takes a request from its endpoint, as a driver does. */
static void take_out(struct urb *urb)
{
	int (*unlink)(struct usb_hcd *, struct urb *) = (void *)guardrail_find_symbol("usb_hcd_unlink_urb_from_ep");

	if (unlink)
		unlink(bus_to_hcd(urb->dev->bus), urb);
}

/*
 * A request that was not accepted stays the kernel's. One that was may be done already. A driver that was ended may have left
 * it with its endpoint, from where the kernel would ask for it for ever.
 */
GUARDRAIL_CUSTOM(urb_queued)
{
	struct urb *urb = (struct urb *)object_of(action, call);

	if (!urb || !(int)call->result)
		return 0;
	/* The teardown has given it back meanwhile, and so it is not the caller's any more. */
	if (guardrail_destroy_object(action->domain, (unsigned long)urb, GUARDRAIL_TYPE_URB) && was_ended(call)) {
		call->result = 0;
		return 0;
	}
	urb_gone(action->domain, urb);
	if (was_ended(call) && !list_empty(&urb->urb_list))
		take_out(urb);
	return 0;
}

/*
 * A host's driver is dead, so nothing completes the requests that it had, for which the kernel waits when it removes the host.
 * A request that the driver completes at the same time is an object no more.
 */
static int end_request(const struct guardrail_held *held, void *unused)
{
	void (*give_back)(struct usb_hcd *, struct urb *, int);
	struct urb *urb = (struct urb *)held->start;
	unsigned long flags;

	if (held->right != GUARDRAIL_OBJECT || held->type != GUARDRAIL_TYPE_URB)
		return 0;
	give_back = (void *)guardrail_find_symbol("usb_hcd_giveback_urb");
	if (!give_back || guardrail_destroy_object(held->domain, held->start, GUARDRAIL_TYPE_URB))
		return 0;
	urb_gone(held->domain, urb);
	local_irq_save(flags);
	take_out(urb);
	give_back(bus_to_hcd(urb->dev->bus), urb, -ESHUTDOWN);
	local_irq_restore(flags);
	return 0;
}

static void settle(u32 domain)
{
	guardrail_walk(domain, end_request, NULL);
}

static struct guardrail_recovery_class usb_hosts = {
	.name = "USB hosts",
	.settle = settle,
};

void __init guardrail_usb_register(void)
{
	guardrail_recovery_register(&usb_hosts);
}

/* hub_control(hcd, type, value, index, buffer, length): there is always room for the description of a hub. */
GUARDRAIL_CUSTOM(hub_buffer)
{
	unsigned long p = object_of(action, call), size = (u16)call->args[5];

	return guardrail_lend(action->domain, p, max(size, sizeof(struct usb_hub_descriptor)));
}
