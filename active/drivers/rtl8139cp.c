// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An active driver for the RTL8139C+: what it waits for, and what it answers. Nothing here touches the device or its rings;
 * rtl8139cp_hw.c and rtl8139cp_rings.c do, and neither of them knows of messages.
 */
#include "rtl8139cp.h"

/* Packets that are received before others have their turn. */
#define BURST 64

static void emit_error(struct active *a, unsigned int box, long error)
{
	struct active_message m = { .number = error };

	active_emit(a, box, &m);
}

/* Says whether there is a link. */
static void tell_link(struct active *a, struct rtl *r)
{
	if (rtl_link(r))
		EMIT(a, ETHERNET_LINK_UP);
	else
		EMIT(a, ETHERNET_LINK_DOWN);
}

/* Starts a device that has rings. */
static void run(struct active *a, struct rtl *r)
{
	EMIT(a, IRQ_ENABLE);
	rtl_start(r);
}

/* Stops a device that runs, unless it is gone, and gives back what it has not sent. */
static void quiet(struct active *a, struct rtl *r, bool gone)
{
	struct active_message *m;

	if (!gone)
		rtl_halt(r);
	EMIT(a, IRQ_DISABLE);
	while ((m = rtl_unsent(r)))
		EMIT(a, ETHERNET_TX_DONE, m);
}

/* Takes what a device needs that is up. */
static long take(struct rtl *r)
{
	long err = rtl_rings_make(r);

	if (err)
		return err;
	err = rtl_fill(r);
	if (!err)
		err = request_irq(r->pdev->irq, rtl_interrupt, IRQF_SHARED, r->dev->name, r);
	if (!err)
		return 0;
	rtl_drain(r);
	rtl_rings_free(r);
	return err;
}

/* Gives that back. */
static void give(struct rtl *r)
{
	free_irq(r->pdev->irq, r);
	rtl_drain(r);
	rtl_rings_free(r);
}

/* Answers `open`. Returns true if the device is up. */
static bool open(struct active *a, struct rtl *r)
{
	struct active_message m = { .number = take(r) };

	if (m.number) {
		EMIT(a, ETHERNET_OPEN_FAILED, &m);
		return false;
	}
	run(a, r);
	tell_link(a, r);
	EMIT(a, ETHERNET_OPENED);
	return true;
}

/* Gives back what the device has sent. */
static void give_back(struct active *a, struct rtl *r)
{
	struct active_message *m;

	while ((m = rtl_sent(r)))
		EMIT(a, ETHERNET_TX_DONE, m);
}

/* Answers `raised`: the device has sent, has received, or its link has changed. Returns whether the ring is still full. */
static bool service(struct active *a, struct rtl *r, bool full)
{
	long budget = irq_raised_bits(a->message), work = 0;
	u16 status = rtl_events(r);
	struct sk_buff *skb;

	rtl_acknowledge(r, status);
	if (status & INT_LINK)
		tell_link(a, r);
	give_back(a, r);
	rtl_time(r);
	if (full && !rtl_is_full(r)) {
		full = false;
		EMIT(a, ETHERNET_QUEUE_WAKE);
	}
	if (budget > BURST)
		budget = BURST;
	for (; work < budget; work++) {
		skb = rtl_receive(r);
		if (!skb)
			break;
		EMIT(a, ETHERNET_RX, active_packet(skb));
	}
	if (work == budget && rtl_is_muted(r)) {
		EMIT(a, IRQ_UNFINISHED);
	} else {
		EMIT(a, IRQ_SERVICED);
		rtl_listen(r);
	}
	return full;
}

/* Handles `xmit`. Returns whether the ring is full now. */
static bool transmit(struct active *a, struct rtl *r)
{
	struct active_message *m = a->message;

	if (rtl_is_late(r))
		give_back(a, r);
	if (!rtl_queue(r, m)) {
		ethernet_tx_done_set_error(m, -ENOMEM);
		EMIT(a, ETHERNET_TX_DONE, m);
	}
	if (!rtl_is_full(r))
		return false;
	EMIT(a, ETHERNET_QUEUE_STOP);
	return true;
}

/* Changes the size of the packets that a device which is up receives. What there is no memory for now is filled in later. */
static void resize(struct active *a, struct rtl *r)
{
	quiet(a, r, false);
	rtl_drain(r);
	rtl_fill(r);
	run(a, r);
}

/* Answers `change`. Returns whether the ring is still full. */
static bool change(struct active *a, struct rtl *r, bool up, bool full)
{
	const struct active_ethernet_change *change = ethernet_change_change(a->message);
	struct active_message m = { .number = 0 };

	if (change->kind != ACTIVE_SET_MTU) {
		m.number = rtl_answer(r, change);
		EMIT(a, ETHERNET_CHANGED, &m);
		return full;
	}
	if (up)
		resize(a, r);
	EMIT(a, ETHERNET_CHANGED, &m);
	if (full)
		EMIT(a, ETHERNET_QUEUE_WAKE);
	return false;
}

static void count(struct active *a, struct rtl *r)
{
	struct active_message m = { .number = rtl_missed(r) };

	EMIT(a, ETHERNET_COUNTED, &m);
}

/* Answers `timeout`: the device begins anew. */
static void restart(struct active *a, struct rtl *r)
{
	quiet(a, r, false);
	run(a, r);
	EMIT(a, ETHERNET_RESTARTED);
}

/* Gives the network device up, which the kernel may still have open, and then the PCI device. The device is halted. */
static void leave(struct active *a, struct rtl *r)
{
	EMIT(a, ETHERNET_UNREGISTER);
	while (AWAIT(a, ETHERNET_STOP, ETHERNET_UNREGISTERED) == ETHERNET_STOP) {
		give(r);
		EMIT(a, ETHERNET_STOPPED);
	}
	rtl_lose(r);
}

/* Answers `remove`. */
static void remove(struct active *a, struct rtl *r, bool running)
{
	if (running)
		quiet(a, r, false);
	leave(a, r);
	EMIT(a, PCI_REMOVED);
}

/* Answers `unplug`. */
static void unplug(struct active *a, struct rtl *r, bool running)
{
	if (running)
		quiet(a, r, true);
	leave(a, r);
	EMIT(a, PCI_UNPLUGGED);
}

/* Answers `error`. The device is reset, or else is lost. */
static void fail(struct active *a)
{
	if (pci_error_state(a->message) == pci_channel_io_perm_failure)
		EMIT(a, PCI_ERROR_FATAL);
	else
		EMIT(a, PCI_ERROR_RESET);
}

/* Brings a device back that was away. */
static bool come_back(struct active *a, struct rtl *r, bool up)
{
	if (rtl_wake(r))
		return false;
	if (up)
		run(a, r);
	EMIT(a, ETHERNET_ATTACH);
	tell_link(a, r);
	return true;
}

/* What the driver goes on with: a network device that is down or up, or nothing more. */
enum next { DOWN, UP, ENDS };

/* Where the device is, while the kernel leaves it alone: it sleeps, or has met an error, or the system shuts down. */
static enum next away(struct active *a, struct rtl *r, bool up)
{
	for (;;) {
		switch (AWAIT(a, PCI_RESUME, PCI_ERROR, PCI_MMIO_ENABLED, PCI_SLOT_RESET, PCI_ERROR_OVER, PCI_SHUTDOWN, PCI_REMOVE,
			      PCI_UNPLUG, ETHERNET_STOP)) {
		case ETHERNET_STOP:
			give(r);
			up = false;
			EMIT(a, ETHERNET_STOPPED);
			break;
		case PCI_RESUME:
			if (come_back(a, r, up)) {
				EMIT(a, PCI_RESUMED);
				return up ? UP : DOWN;
			}
			emit_error(a, PCI_RESUME_FAILED, -EIO);
			break;
		case PCI_ERROR_OVER:
			if (come_back(a, r, up)) {
				EMIT(a, PCI_RECOVERED);
				return up ? UP : DOWN;
			}
			EMIT(a, PCI_RECOVERY_FAILED);
			break;
		case PCI_ERROR:
			fail(a);
			break;
		case PCI_MMIO_ENABLED:
			EMIT(a, PCI_MMIO_USABLE);
			break;
		case PCI_SLOT_RESET:
			pci_restore_state(r->pdev);
			pci_save_state(r->pdev);
			if (rtl_reset(r))
				EMIT(a, PCI_SLOT_FAILED);
			else
				EMIT(a, PCI_SLOT_READY);
			break;
		case PCI_SHUTDOWN:
			EMIT(a, PCI_SHUT_DOWN);
			break;
		case PCI_REMOVE:
			remove(a, r, false);
			return ENDS;
		case PCI_UNPLUG:
			unplug(a, r, false);
			return ENDS;
		}
	}
}

/* The kernel sends nothing more to the network device, which halts. */
static void put_away(struct active *a, struct rtl *r, bool up)
{
	if (up)
		quiet(a, r, false);
	EMIT(a, ETHERNET_DETACH);
}

/* From when the device runs until something of the PCI device comes between. */
static enum next runs(struct active *a, struct rtl *r, bool up)
{
	bool full = false;

	for (;;) {
		switch (AWAIT(a, ETHERNET_XMIT, IRQ_RAISED, ETHERNET_OPEN, ETHERNET_STOP, ETHERNET_CHANGE, ETHERNET_RX_MODE,
			      ETHERNET_STATISTICS, ETHERNET_TIMEOUT, PCI_SUSPEND, PCI_ERROR, PCI_SHUTDOWN, PCI_REMOVE, PCI_UNPLUG)) {
		case ETHERNET_XMIT:
			full = transmit(a, r);
			break;
		case IRQ_RAISED:
			full = service(a, r, full);
			break;
		case ETHERNET_OPEN:
			up = open(a, r);
			full = false;
			break;
		case ETHERNET_STOP:
			quiet(a, r, false);
			give(r);
			up = false;
			full = false;
			EMIT(a, ETHERNET_STOPPED);
			break;
		case ETHERNET_CHANGE:
			full = change(a, r, up, full);
			break;
		case ETHERNET_RX_MODE:
			rtl_filter(r);
			break;
		case ETHERNET_STATISTICS:
			count(a, r);
			break;
		case ETHERNET_TIMEOUT:
			restart(a, r);
			full = false;
			break;
		case PCI_SUSPEND:
			put_away(a, r, up);
			rtl_sleep(r);
			EMIT(a, PCI_SUSPENDED);
			return up ? UP : DOWN;
		case PCI_ERROR:
			put_away(a, r, up);
			fail(a);
			return up ? UP : DOWN;
		case PCI_SHUTDOWN:
			put_away(a, r, up);
			EMIT(a, PCI_SHUT_DOWN);
			return up ? UP : DOWN;
		case PCI_REMOVE:
			remove(a, r, up);
			return ENDS;
		case PCI_UNPLUG:
			unplug(a, r, up);
			return ENDS;
		}
	}
}

/* Answers `probe`. Returns false if it failed. */
static bool bind(struct active *a, struct rtl *r)
{
	struct active_message m = {};

	r->a = a;
	r->dev = active_ethernet_dev(a);
	m.number = rtl_find(r, pci_probe_dev(a->message));
	if (m.number) {
		EMIT(a, PCI_PROBE_FAILED, &m);
		return false;
	}
	EMIT(a, ETHERNET_REGISTER);
	if (AWAIT(a, ETHERNET_REGISTERED, ETHERNET_REGISTER_FAILED) == ETHERNET_REGISTER_FAILED) {
		m.number = ethernet_register_failed_error(a->message);
		rtl_lose(r);
		EMIT(a, PCI_PROBE_FAILED, &m);
		return false;
	}
	EMIT(a, PCI_PROBED);
	return true;
}

static void rtl8139cp_main(struct active *a)
{
	struct rtl *r = a->priv;
	enum next next = DOWN;

	AWAIT(a, PCI_PROBE);
	if (!bind(a, r))
		return;
	while (next != ENDS) {
		next = runs(a, r, next == UP);
		if (next != ENDS)
			next = away(a, r, next == UP);
	}
}
ACTIVE_PROGRAM(rtl8139cp_main, "pci ethernet irq");

static const char counter_names[COUNTERS][ETH_GSTRING_LEN] = {
	"tx_ok", "rx_ok", "tx_err", "rx_err", "rx_fifo", "frame_align", "tx_ok_1col", "tx_ok_mcol", "rx_ok_phys", "rx_ok_bcast",
	"rx_ok_mcast", "tx_abort", "tx_underrun",
};

static const struct active_ethernet_driver ethernet = {
	.version = "1.0", .timeout = 6 * HZ, .least_mtu = 60, .greatest_mtu = 4096, .greatest_segment = GREATEST_SEGMENT,
	.rx_ring = RX_RING, .tx_ring = TX_RING, .registers = REGISTERS, .eeprom = EEPROM_BYTES,
	.counter_names = counter_names, .counters = COUNTERS,
};

static const struct pci_device_id ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REALTEK, PCI_DEVICE_ID_REALTEK_8139) },
	{ PCI_DEVICE(PCI_VENDOR_ID_TTTECH, PCI_DEVICE_ID_TTTECH_MC322) },
	{}
};
MODULE_DEVICE_TABLE(pci, ids);

static struct active_pci_driver rtl8139cp = {
	.name = "active_8139cp", .ids = ids, .main = rtl8139cp_main, .protocols = active_program_rtl8139cp_main,
	.priv_size = sizeof(struct rtl), .attach = active_ethernet_attach, .detach = active_ethernet_detach, .data = &ethernet,
};
module_active_pci_driver(rtl8139cp);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Active driver of the RTL8139C+");
