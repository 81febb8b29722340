/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The RTL8139C+, by its data sheet: registers, descriptors, and what the driver's parts share. */
#ifndef ACTIVE_RTL8139CP_H
#define ACTIVE_RTL8139CP_H

#include "active_net.h"

/* Registers, by their offset. */
enum {
	IDR = 0x00,		/* the station's address */
	MAR = 0x08,		/* filter of groups */
	DTCCR = 0x10,		/* where counters are dumped to */
	TNPDS = 0x20,		/* transmit ring */
	THPDS = 0x28,		/* transmit ring of high priority */
	CR = 0x37,		/* command */
	IMR = 0x3c,		/* interrupt mask */
	ISR = 0x3e,		/* interrupt status */
	TCR = 0x40,		/* transmit configuration */
	RCR = 0x44,		/* receive configuration */
	TCTR = 0x48,		/* a timer that counts cycles of the PCI bus; any write begins it at 0 */
	MPC = 0x4c,		/* missed packets */
	CR9346 = 0x50,		/* EEPROM, and the lock of configuration registers */
	CONFIG1 = 0x52,
	TIMER_INT = 0x54,	/* where that timer interrupts */
	CONFIG3 = 0x59,
	BMCR_ = 0x62,		/* the registers of the PHY */
	BMSR_ = 0x64,
	ANAR = 0x66,
	ANLPAR = 0x68,
	ANER = 0x6a,
	CONFIG5 = 0xd8,
	TPPOLL = 0xd9,		/* transmit polling */
	CPCR = 0xe0,		/* C+ command */
	RDSAR = 0xe4,		/* receive ring */
	ETTHR = 0xec,		/* early transmit threshold */
	REGISTERS = 0x100,
};

/* CR */
enum { CR_RESET = 0x10, CR_RECEIVE = 0x08, CR_TRANSMIT = 0x04 };
/* IMR and ISR */
enum {
	INT_RX_OK = 0x0001, INT_RX_ERROR = 0x0002, INT_TX_OK = 0x0004, INT_TX_ERROR = 0x0008, INT_RX_EMPTY = 0x0010,
	INT_LINK = 0x0020, INT_RX_FIFO = 0x0040, INT_TX_EMPTY = 0x0080, INT_LENGTH = 0x2000, INT_TIMER = 0x4000, INT_BUS = 0x8000,
	INT_RX = INT_RX_OK | INT_RX_ERROR | INT_RX_EMPTY | INT_RX_FIFO,
	/* Not that packets were sent: see TX_LATE. */
	INT_TX = INT_TX_ERROR | INT_TIMER,
	INT_ALL = INT_RX | INT_TX | INT_LINK | INT_LENGTH | INT_BUS,
};
/* TCR: the gap between frames, and bursts of 1024 bytes */
#define TCR_VALUE (3 << 24 | 6 << 8)
/* RCR: thresholds, and which packets are received */
#define RCR_VALUE (5 << 13 | 4 << 8)
enum { RCR_ALL = 0x01, RCR_OWN = 0x02, RCR_GROUPS = 0x04, RCR_BROADCAST = 0x08 };
/* CPCR */
enum { CP_TX = 0x01, CP_RX = 0x02, CP_MULTIPLE = 0x08, CP_DAC = 0x10, CP_RX_CHECKSUM = 0x20, CP_RX_VLAN = 0x40 };
enum { CR9346_UNLOCK = 0xc0, CR9346_LOCK = 0x00, CR9346_PROGRAM = 0x80 };
enum { EE_SELECT = 0x08, EE_CLOCK = 0x04, EE_OUT = 0x02, EE_IN = 0x01 };
enum { TPPOLL_NORMAL = 0x40 };
enum { CONFIG1_PM = 0x01, CONFIG1_DRIVER = 0x20, CONFIG3_MAGIC = 0x20, CONFIG3_LINK = 0x10, CONFIG5_UNICAST = 0x10 };
enum { DTCCR_DUMP = 0x08 };

/* The first word of descriptors */
#define OWN 0x80000000u		/* the device's */
#define END 0x40000000u		/* the last of the ring */
#define FIRST 0x20000000u
#define LAST 0x10000000u
/* of those to send */
#define TX_SEGMENT 0x08000000u
#define TX_MSS_SHIFT 16
#define TX_IP 0x00040000u
#define TX_UDP 0x00020000u
#define TX_TCP 0x00010000u
/* of those that were sent */
#define TXS_ERROR 0x00800000u
#define TXS_FIFO 0x02000000u
#define TXS_WINDOW 0x00400000u
#define TXS_CARRIER 0x00200000u
#define TXS_COLLISIONS_EXCEEDED 0x00100000u
#define TXS_COLLISIONS(w) ((w) >> 16 & 15)
/* of those that were received */
#define RXS_FRAME 0x08000000u
#define RXS_FIFO 0x00400000u
#define RXS_LONG 0x00200000u
#define RXS_ERROR 0x00100000u
#define RXS_RUNT 0x00080000u
#define RXS_CRC 0x00040000u
#define RXS_PROTOCOL(w) ((w) >> 16 & 3)
#define RXS_BAD_IP 0x8000u
#define RXS_BAD_UDP 0x4000u
#define RXS_BAD_TCP 0x2000u
#define RXS_LENGTH 0x1fffu
/* The second word */
#define TX_TAG 0x00020000u
#define RX_TAGGED 0x00010000u

#define RX_RING 64u
#define TX_RING 64u
/* A packet has at most so many parts. */
#define TX_PARTS (MAX_SKB_FRAGS + 1)
/*
 * An interrupt for each packet that was sent costs more than sending it. Those sent are taken back with what is received, when
 * so many descriptors are in use, and at the latest after so many cycles of the PCI bus. There are 33 of these in a microsecond,
 * so that is a little more than a jiffy. A full ring of the smallest packets is sent within 430 microseconds, and is looked at
 * before that.
 */
#define TX_LATE 8
#define TX_CYCLES (34000000 / HZ)
#define TX_CYCLES_FULL 7000
#define GREATEST_SEGMENT 0xfff
#define COUNTERS 13
#define EEPROM_BYTES 256

/* A descriptor, as the device reads it. */
struct rtl_descriptor {
	__le32 status, tag;
	__le64 address;
};

/* Where the device dumps its counters. */
struct rtl_counters {
	__le64 tx_ok, rx_ok, tx_error;
	__le32 rx_error;
	__le16 rx_missed, align_error;
	__le32 tx_one_collision, tx_more_collisions;
	__le64 rx_unicast, rx_broadcast;
	__le32 rx_multicast;
	__le16 tx_aborted, tx_underrun;
} __packed;

/**
 * struct rtl - A device: a->priv.
 * @a: The domain.
 * @pdev: The PCI device.
 * @dev: The network device.
 * @registers: Its registers.
 * @tx: The ring of packets to send, and after it that of packets to receive.
 * @rx: The latter.
 * @ring_bus: Where the device sees @tx.
 * @rx_skb: The packet that each descriptor receives into.
 * @rx_bus: Where the device sees its data.
 * @rx_size: Their size.
 * @rx_next: The next descriptor that the device fills, a count that is never reset.
 * @tx_message: The packet of each descriptor that is the last of one.
 * @tx_bus: Where the device sees what the descriptor points to.
 * @tx_size: How many bytes that is.
 * @tx_begin: The oldest descriptor that has not been taken back, a count.
 * @tx_end: The next free one.
 * @timer: Where the device's timer will interrupt, in cycles; 0 if it may not.
 * @timer_since: When it began, in jiffies.
 * @events: What the top half has read of ISR, and the driver not yet. Both change it.
 * @muted: The top half has turned interrupts off.
 * @command: CPCR.
 * @wake: What wakes the system.
 * @mii: The PHY.
 */
struct rtl {
	struct active *a;
	struct pci_dev *pdev;
	struct net_device *dev;
	void __iomem *registers;
	struct rtl_descriptor *tx, *rx;
	dma_addr_t ring_bus;
	struct sk_buff *rx_skb[RX_RING];
	dma_addr_t rx_bus[RX_RING];
	unsigned int rx_size, rx_next;
	struct active_message *tx_message[TX_RING];
	dma_addr_t tx_bus[TX_RING];
	u32 tx_size[TX_RING];
	unsigned int tx_begin, tx_end;
	u32 timer;
	unsigned long timer_since;
	atomic_t events;
	bool muted;
	u16 command;
	u32 wake;
	struct mii_if_info mii;
};

#define RINGS_BYTES ((RX_RING + TX_RING) * sizeof(struct rtl_descriptor) + sizeof(struct rtl_counters))

/* rtl8139cp_hw.c: the device. None of these waits for or sends a message. */
int rtl_find(struct rtl *r, struct pci_dev *pdev);
void rtl_lose(struct rtl *r);
int rtl_reset(struct rtl *r);
void rtl_start(struct rtl *r);
void rtl_halt(struct rtl *r);
void rtl_filter(struct rtl *r);
void rtl_features(struct rtl *r, u64 features);
long rtl_missed(struct rtl *r);
bool rtl_link(struct rtl *r);
long rtl_answer(struct rtl *r, const struct active_ethernet_change *change);
void rtl_sleep(struct rtl *r);
int rtl_wake(struct rtl *r);
void rtl_ring(void *data);
void rtl_time(struct rtl *r);
u16 rtl_events(struct rtl *r);
void rtl_acknowledge(struct rtl *r, u16 status);
void rtl_listen(struct rtl *r);
irqreturn_t rtl_interrupt(int irq, void *data);

/* rtl8139cp_rings.c: rings. */
int rtl_rings_make(struct rtl *r);
void rtl_rings_free(struct rtl *r);
int rtl_fill(struct rtl *r);
void rtl_drain(struct rtl *r);
void rtl_relend(struct rtl *r);
struct sk_buff *rtl_receive(struct rtl *r);
bool rtl_queue(struct rtl *r, struct active_message *m);
struct active_message *rtl_sent(struct rtl *r);
struct active_message *rtl_unsent(struct rtl *r);

/* Free descriptors of the ring of packets to send. */
static inline unsigned int rtl_room(const struct rtl *r)
{
	return TX_RING - (r->tx_end - r->tx_begin);
}

/* Whether there may be no room for one more packet. */
static inline bool rtl_is_full(const struct rtl *r)
{
	return rtl_room(r) <= TX_PARTS;
}

/* Whether it is time to look for packets that were sent. */
static inline bool rtl_is_late(const struct rtl *r)
{
	return r->tx_end - r->tx_begin >= TX_LATE;
}

/* Whether the device says nothing until rtl_listen(), since it has more to say than that it is time to look for what was sent. */
static inline bool rtl_is_muted(const struct rtl *r)
{
	return r->muted;
}

#define rtl_read8(r, at) ioread8((r)->registers + (at))
#define rtl_read16(r, at) ioread16((r)->registers + (at))
#define rtl_read32(r, at) ioread32((r)->registers + (at))
#define rtl_write8(r, at, v) iowrite8(v, (r)->registers + (at))
#define rtl_write16(r, at, v) iowrite16(v, (r)->registers + (at))
#define rtl_write32(r, at, v) iowrite32(v, (r)->registers + (at))

#endif
