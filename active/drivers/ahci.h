/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Registers and memory of AHCI controllers, by the Serial ATA AHCI 1.3.1 specification, and what their domains share. */
#ifndef ACTIVE_DRIVERS_AHCI_H
#define ACTIVE_DRIVERS_AHCI_H

#include <linux/pci.h>

#include "ata.h"

#define SLOTS 32
#define PIECES 168

/* Registers of the controller, and bits of them. */
enum {
	CAP = 0x00,
	CAP_NCQ = BIT(30),
	CAP_64 = BIT(31),
	CAP_CLO = BIT(24),
	CAP_ALPM = BIT(26),
	GHC = 0x04,
	GHC_RESET = BIT(0),
	GHC_INTERRUPTS = BIT(1),
	GHC_AHCI = BIT(31),
	IS = 0x08,
	PI = 0x0c,
	PORTS = 0x100,
	PORT_SIZE = 0x80,
};

/* Registers of a port, and bits of them. */
enum {
	LIST = 0x00,
	FIS = 0x08,
	STATUS = 0x10,
	ENABLE = 0x14,
	COMMAND = 0x18,
	START = BIT(0),
	SPIN_UP = BIT(1),
	POWER_ON = BIT(2),
	OVERRIDE = BIT(3),
	RECEIVE = BIT(4),
	RECEIVING = BIT(14),
	RUNNING = BIT(15),
	PACKET_DEVICE = BIT(24),
	LINK_POWER = BIT(26),
	LINK_SLUMBER = BIT(27),
	LINK_ACTIVE = BIT(28),
	TASK_FILE = 0x20,
	SIGNATURE = 0x24,
	LINK_STATUS = 0x28,
	LINK_CONTROL = 0x2c,
	LINK_NO_SAVING = 0x300,
	LINK_ERROR = 0x30,
	QUEUED_ACTIVE = 0x34,
	ISSUED = 0x38,
	NOTIFICATION = 0x3c,
};

/* Interrupts of a port. */
enum {
	IRQ_REGISTERS = BIT(0),
	IRQ_PIO = BIT(1),
	IRQ_DMA = BIT(2),
	IRQ_BITS = BIT(3),
	IRQ_UNKNOWN = BIT(4),
	IRQ_PIECE = BIT(5),
	IRQ_CONNECT = BIT(6),
	IRQ_PHY = BIT(22),
	IRQ_INTERFACE = BIT(27),
	IRQ_DATA = BIT(28),
	IRQ_BUS = BIT(29),
	IRQ_TASK_FILE = BIT(30),
	IRQ_LINK = IRQ_CONNECT | IRQ_PHY,
	IRQ_FATAL = IRQ_UNKNOWN | IRQ_INTERFACE | IRQ_DATA | IRQ_BUS,
	IRQ_ERRORS = IRQ_LINK | IRQ_FATAL | IRQ_TASK_FILE,
	IRQ_ALL = IRQ_ERRORS | IRQ_REGISTERS | IRQ_PIO | IRQ_DMA | IRQ_BITS | IRQ_PIECE,
};

/* A command header, and its bits. */
struct header {
	__le32 options;
	__le32 transferred;
	__le64 table;
	__le32 reserved[4];
};

enum {
	HEADER_WORDS = 5,
	HEADER_PACKET = BIT(5),
	HEADER_WRITE = BIT(6),
	HEADER_PREFETCH = BIT(7),
	HEADER_RESET = BIT(8),
	HEADER_CLEAR = BIT(10),
};

/* A command's table. */
struct table {
	u8 fis[64];
	u8 packet[64];
	struct {
		__le64 address;
		__le32 reserved;
		__le32 bytes;
	} pieces[PIECES];
};

/* Received FISes, at the offsets that the specification gives. */
struct received {
	u8 dma_setup[0x20];
	u8 pio_setup[0x20];
	u8 device[0x18];
	u8 bits[8];
	u8 unknown[0x40];
	u8 reserved[0x60];
};

/* What a port and the controller read of each other in memory. */
struct port_memory {
	struct header headers[SLOTS];
	struct received received;
	struct table tables[SLOTS];
};

/**
 * struct ahci - The controller's own data.
 * @ata: What the wrapper shares.
 * @reply: For messages with a payload.
 * @pdev: The device.
 * @mmio: The registers.
 * @capabilities: CAP.
 */
struct ahci {
	struct active_ata_controller ata;
	struct active_message reply;
	struct pci_dev *pdev;
	void __iomem *mmio;
	u32 capabilities;
};

/**
 * struct ahci_port - A port's own data.
 * @ata: What the wrapper shares.
 * @reply: For messages with a payload.
 * @mmio: The port's registers.
 * @memory: What the controller reads of commands, from start to stop.
 * @address: Where the controller finds @memory.
 * @interrupts: Which are on while the port is thawed.
 * @tags: The commands that run.
 */
struct ahci_port {
	struct active_ata_port ata;
	struct active_message reply;
	void __iomem *mmio;
	struct port_memory *memory;
	dma_addr_t address;
	u32 interrupts;
	u32 tags;
};

static inline struct ahci *ahci_of(struct ahci_port *p)
{
	return container_of(p->ata.controller, struct ahci, ata);
}

static inline u32 ahci_get(struct ahci_port *p, unsigned int reg)
{
	return readl(p->mmio + reg);
}

static inline void ahci_put(struct ahci_port *p, unsigned int reg, u32 value)
{
	writel(value, p->mmio + reg);
}

/* What ahci_reset_link() returns where no device is there. */
#define AHCI_LINK_DOWN (-ENOLINK)

/**
 * ahci_start_port() - Gets the port's memory and powers the port. Its interrupts are off.
 * Context: May sleep, as do all functions here but those that issue a command.
 * Return: 0 or an error.
 */
int ahci_start_port(struct ahci_port *p);
/* Ends that. */
void ahci_stop_port(struct ahci_port *p);
/* Says where the port's memory is, powers the device and receives what it sends (10.1.2). */
void ahci_power_up(struct ahci_port *p);
/* The port touches its memory no more. Return: 0 or an error. */
int ahci_power_down(struct ahci_port *p);
/* Drops all commands. Return: 0 or an error. */
int ahci_restart_engine(struct ahci_port *p);

/**
 * ahci_reset_link() - Resets the link and the device (10.4.2).
 * @deadline: In jiffies.
 * Return: The device's signature, AHCI_LINK_DOWN or an error.
 */
long ahci_reset_link(struct ahci_port *p, unsigned long deadline);

/**
 * ahci_reset_device() - Resets the device by a command (10.4.1).
 * @deadline: In jiffies.
 * Return: The device's signature or an error.
 */
long ahci_reset_device(struct ahci_port *p, unsigned long deadline);

/* Begin a command. Context: Any. */
void ahci_issue_single(struct ahci_port *p, struct ata_queued_cmd *qc);
void ahci_issue_queued(struct ahci_port *p, struct ata_queued_cmd *qc);

/* ahci_port.c: what a port's driver is. */
extern const struct active_ata_options ahci_options;

#endif
