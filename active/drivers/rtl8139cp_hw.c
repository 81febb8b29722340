// SPDX-License-Identifier: GPL-2.0-or-later
/* The registers of the RTL8139C+. The driver alone touches them, except for the interrupt's top half. */
#include <linux/crc32.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/if_vlan.h>

#include "rtl8139cp.h"

/* --- The PHY, whose registers are among the others. */

static int phy_register(int reg)
{
	switch (reg) {
	case MII_BMCR:
		return BMCR_;
	case MII_BMSR:
		return BMSR_;
	case MII_ADVERTISE:
		return ANAR;
	case MII_LPA:
		return ANLPAR;
	case MII_EXPANSION:
		return ANER;
	default:
		return 0;
	}
}

static int phy_read(struct net_device *dev, int phy, int reg)
{
	struct rtl *r = active_ethernet_of(dev)->priv;
	int at = phy_register(reg);

	return at ? rtl_read16(r, at) : 0;
}

static void phy_write(struct net_device *dev, int phy, int reg, int value)
{
	struct rtl *r = active_ethernet_of(dev)->priv;
	int at = phy_register(reg);

	/* The basic mode register is locked. */
	if (at == BMCR_) {
		rtl_write8(r, CR9346, CR9346_UNLOCK);
		rtl_write16(r, at, value);
		rtl_write8(r, CR9346, CR9346_LOCK);
	} else if (at) {
		rtl_write16(r, at, value);
	}
}

bool rtl_link(struct rtl *r)
{
	return mii_link_ok(&r->mii);
}

/* --- Start and stop. */

/* Return: 0, or -ETIMEDOUT where the device does not answer. */
int rtl_reset(struct rtl *r)
{
	int n;

	rtl_write8(r, CR, CR_RESET);
	for (n = 0; n < 1000; n++) {
		if (!(rtl_read8(r, CR) & CR_RESET))
			return 0;
		udelay(10);
	}
	dev_err(&r->pdev->dev, "the device does not come out of reset\n");
	return -ETIMEDOUT;
}

static void write_address(struct rtl *r)
{
	const u8 *address = r->dev->dev_addr;

	rtl_write32(r, IDR, address[0] | address[1] << 8 | address[2] << 16 | (u32)address[3] << 24);
	rtl_write32(r, IDR + 4, address[4] | address[5] << 8);
}

/* Starts the device with rings that are filled. Context: Any. */
void rtl_start(struct rtl *r)
{
	u64 tx = r->ring_bus, rx = r->ring_bus + TX_RING * sizeof(struct rtl_descriptor);

	rtl_reset(r);
	rtl_relend(r);
	rtl_write8(r, CR9346, CR9346_UNLOCK);
	write_address(r);
	/* What follows means the rings of the C+ mode only after this. */
	rtl_write16(r, CPCR, r->command);
	rtl_write32(r, THPDS, 0);
	rtl_write32(r, THPDS + 4, 0);
	rtl_write32(r, RDSAR, lower_32_bits(rx));
	rtl_write32(r, RDSAR + 4, upper_32_bits(rx));
	rtl_write32(r, TNPDS, lower_32_bits(tx));
	rtl_write32(r, TNPDS + 4, upper_32_bits(tx));
	rtl_write8(r, CR, CR_RECEIVE | CR_TRANSMIT);
	rtl_write8(r, ETTHR, 6);
	rtl_filter(r);
	rtl_write32(r, TCR, TCR_VALUE);
	rtl_write8(r, CONFIG1, rtl_read8(r, CONFIG1) | CONFIG1_DRIVER | CONFIG1_PM);
	rtl_write8(r, CR9346, CR9346_LOCK);
	atomic_set(&r->events, 0);
	r->muted = false;
	r->timer = 0;
	rtl_write16(r, ISR, 0xffff);
	rtl_write16(r, IMR, INT_ALL);
}

/* Stops the device: it touches memory no more. */
void rtl_halt(struct rtl *r)
{
	rtl_write16(r, IMR, 0);
	rtl_write8(r, CR, 0);
	rtl_write16(r, CPCR, 0);
	rtl_write16(r, ISR, 0xffff);
	rtl_read16(r, ISR);
}

void rtl_filter(struct rtl *r)
{
	struct active_ethernet_filter filter;
	u32 mode = RCR_BROADCAST | RCR_OWN | RCR_GROUPS, hash[2] = { 0, 0 };
	unsigned int i;

	active_ethernet_filter(r->a, &filter);
	if (filter.flags & (IFF_PROMISC | IFF_ALLMULTI))
		hash[0] = hash[1] = ~0u;
	if (filter.flags & IFF_PROMISC)
		mode |= RCR_ALL;
	for (i = 0; i < filter.count && i < ACTIVE_FILTER_ADDRESSES; i++) {
		u32 bit = ether_crc(ETH_ALEN, filter.addresses[i]) >> 26;

		hash[bit >> 5] |= 1u << (bit & 31);
	}
	rtl_write32(r, RCR, RCR_VALUE | mode);
	rtl_write32(r, MAR, hash[0]);
	rtl_write32(r, MAR + 4, hash[1]);
}

void rtl_features(struct rtl *r, u64 features)
{
	r->command &= ~(CP_RX_CHECKSUM | CP_RX_VLAN);
	if (features & NETIF_F_RXCSUM)
		r->command |= CP_RX_CHECKSUM;
	if (features & NETIF_F_HW_VLAN_CTAG_RX)
		r->command |= CP_RX_VLAN;
}

/* Packets that the device had no descriptor for, since it was asked last. */
long rtl_missed(struct rtl *r)
{
	u32 missed = rtl_read32(r, MPC) & 0xffffff;

	rtl_write32(r, MPC, 0);
	return missed;
}

/* Has the device look at the ring of packets to send. */
void rtl_ring(void *data)
{
	struct rtl *r = data;

	rtl_write8(r, TPPOLL, TPPOLL_NORMAL);
}

/* Has the device interrupt in a while, if there are packets to take back. */
void rtl_time(struct rtl *r)
{
	u32 cycles = rtl_is_full(r) ? TX_CYCLES_FULL : TX_CYCLES;

	if (r->tx_begin == r->tx_end || (r->timer && r->timer <= cycles))
		return;
	r->timer = cycles;
	r->timer_since = jiffies;
	/* In the other order the timer could already be beyond it. */
	rtl_write32(r, TIMER_INT, cycles);
	rtl_write32(r, TCTR, 0);
}

/* True if the driver has to look at more than what was sent. */
static bool has_work(u16 status)
{
	return status & INT_ALL & ~INT_TX;
}

/*
 * The top half. What is about packets that were sent is acknowledged here. All else stays pending until the driver has looked,
 * and the device says nothing until then.
 */
irqreturn_t rtl_interrupt(int irq, void *data)
{
	struct rtl *r = data;
	u16 status = rtl_read16(r, ISR);

	if (!(status & INT_ALL) || status == 0xffff)
		return IRQ_NONE;
	if (has_work(status))
		rtl_write16(r, IMR, 0);
	else
		rtl_write16(r, ISR, status);
	/* The one that takes this from @events turns interrupts on again, so they are off before. */
	atomic_or(status, &r->events);
	if (has_work(status))
		active_interrupt(r->a, 0);
	else
		active_ethernet_sent(r->a);
	return IRQ_HANDLED;
}

/* Takes what the top half has read. */
u16 rtl_events(struct rtl *r)
{
	return atomic_xchg(&r->events, 0);
}

/* Acknowledges it, before the rings are looked at. */
void rtl_acknowledge(struct rtl *r, u16 status)
{
	/* QEMU's device forgets a timer that has just ended if ISR is written before the interrupt. */
	if (status & INT_TIMER || jiffies != r->timer_since || r->timer == TX_CYCLES_FULL)
		r->timer = 0;
	if (!has_work(status))
		return;
	r->muted = true;
	rtl_write16(r, ISR, status);
}

/* Lets the device interrupt again. */
void rtl_listen(struct rtl *r)
{
	if (!r->muted)
		return;
	r->muted = false;
	rtl_write16(r, IMR, INT_ALL);
}

/* --- What the kernel asks for. */

/* Reads a word of the EEPROM, a 93C46 or 93C56, bit by bit. */
static u16 eeprom_word(struct rtl *r, unsigned int at, unsigned int address_bits)
{
	u32 command = 6u << address_bits | at;
	u16 word = 0;
	int bit;

	rtl_write8(r, CR9346, CR9346_PROGRAM);
	rtl_write8(r, CR9346, CR9346_PROGRAM | EE_SELECT);
	for (bit = address_bits + 2; bit >= 0; bit--) {
		u8 out = CR9346_PROGRAM | EE_SELECT | (command >> bit & 1 ? EE_OUT : 0);

		rtl_write8(r, CR9346, out);
		rtl_read8(r, CR9346);
		rtl_write8(r, CR9346, out | EE_CLOCK);
		rtl_read8(r, CR9346);
	}
	for (bit = 0; bit < 16; bit++) {
		rtl_write8(r, CR9346, CR9346_PROGRAM | EE_SELECT);
		rtl_read8(r, CR9346);
		rtl_write8(r, CR9346, CR9346_PROGRAM | EE_SELECT | EE_CLOCK);
		word = word << 1 | (rtl_read8(r, CR9346) & EE_IN);
	}
	rtl_write8(r, CR9346, CR9346_PROGRAM);
	rtl_write8(r, CR9346, CR9346_LOCK);
	return word;
}

static long read_eeprom(struct rtl *r, u8 *data, u32 offset, u32 length)
{
	unsigned int address_bits = eeprom_word(r, 0, 8) == 0x8129 ? 8 : 6;
	u32 i;

	for (i = 0; i < length && offset + i < EEPROM_BYTES; i++)
		data[i] = eeprom_word(r, (offset + i) / 2, address_bits) >> (offset + i) % 2 * 8;
	return 0;
}

/* Has the device dump its counters behind the rings, if it is up. */
static long read_counters(struct rtl *r, u64 *data)
{
	struct rtl_counters *c = (void *)(r->rx + RX_RING);
	u64 bus = r->ring_bus + (TX_RING + RX_RING) * sizeof(struct rtl_descriptor);
	int n;

	if (!r->tx)
		return -ENETDOWN;
	rtl_write32(r, DTCCR + 4, upper_32_bits(bus));
	rtl_write32(r, DTCCR, lower_32_bits(bus) | DTCCR_DUMP);
	for (n = 0; n < 1000 && rtl_read32(r, DTCCR) & DTCCR_DUMP; n++)
		udelay(10);
	rtl_write32(r, DTCCR, 0);
	rtl_write32(r, DTCCR + 4, 0);
	data[0] = le64_to_cpu(c->tx_ok);
	data[1] = le64_to_cpu(c->rx_ok);
	data[2] = le64_to_cpu(c->tx_error);
	data[3] = le32_to_cpu(c->rx_error);
	data[4] = le16_to_cpu(c->rx_missed);
	data[5] = le16_to_cpu(c->align_error);
	data[6] = le32_to_cpu(c->tx_one_collision);
	data[7] = le32_to_cpu(c->tx_more_collisions);
	data[8] = le64_to_cpu(c->rx_unicast);
	data[9] = le64_to_cpu(c->rx_broadcast);
	data[10] = le32_to_cpu(c->rx_multicast);
	data[11] = le16_to_cpu(c->tx_aborted);
	data[12] = le16_to_cpu(c->tx_underrun);
	return 0;
}

static long read_registers(struct rtl *r, u8 *data)
{
	unsigned int at;

	for (at = 0; at < REGISTERS; at++)
		data[at] = rtl_read8(r, at);
	return 0;
}

static void set_address(struct rtl *r, const u8 *address)
{
	rtl_write8(r, CR9346, CR9346_UNLOCK);
	rtl_write32(r, IDR, address[0] | address[1] << 8 | address[2] << 16 | (u32)address[3] << 24);
	rtl_write32(r, IDR + 4, address[4] | address[5] << 8);
	rtl_write8(r, CR9346, CR9346_LOCK);
}

#define WAKES (WAKE_MAGIC | WAKE_PHY | WAKE_UCAST)

static void get_wake(struct rtl *r, struct ethtool_wolinfo *wake)
{
	wake->supported = WAKES;
	wake->wolopts = r->wake;
}

static long set_wake(struct rtl *r, const struct ethtool_wolinfo *wake)
{
	u8 three, five;

	if (wake->wolopts & ~WAKES)
		return -EINVAL;
	rtl_write8(r, CR9346, CR9346_UNLOCK);
	three = rtl_read8(r, CONFIG3) & ~(CONFIG3_MAGIC | CONFIG3_LINK);
	five = rtl_read8(r, CONFIG5) & ~CONFIG5_UNICAST;
	three |= (wake->wolopts & WAKE_MAGIC ? CONFIG3_MAGIC : 0) | (wake->wolopts & WAKE_PHY ? CONFIG3_LINK : 0);
	five |= wake->wolopts & WAKE_UCAST ? CONFIG5_UNICAST : 0;
	rtl_write8(r, CONFIG3, three);
	rtl_write8(r, CONFIG5, five);
	rtl_write8(r, CR9346, CR9346_LOCK);
	r->wake = wake->wolopts;
	device_set_wakeup_enable(&r->pdev->dev, r->wake);
	return 0;
}

/* Does what a message `change` asks for, except for what must stop the device. Context: May sleep. Return: 0 or an error. */
long rtl_answer(struct rtl *r, const struct active_ethernet_change *change)
{
	struct ifreq *request = change->data;

	switch (change->kind) {
	case ACTIVE_SET_ADDRESS:
		set_address(r, change->data);
		return 0;
	case ACTIVE_SET_FEATURES:
		rtl_features(r, change->value);
		rtl_write16(r, CPCR, r->command);
		return 0;
	case ACTIVE_GET_LINK:
		mii_ethtool_get_link_ksettings(&r->mii, change->data);
		return 0;
	case ACTIVE_SET_LINK:
		return mii_ethtool_set_link_ksettings(&r->mii, change->data);
	case ACTIVE_RENEGOTIATE:
		return mii_nway_restart(&r->mii);
	case ACTIVE_MII:
		return generic_mii_ioctl(&r->mii, if_mii(request), change->value, NULL);
	case ACTIVE_READ_REGISTERS:
		return read_registers(r, change->data);
	case ACTIVE_READ_EEPROM:
		return read_eeprom(r, change->data, change->offset, change->length);
	case ACTIVE_READ_COUNTERS:
		return read_counters(r, change->data);
	case ACTIVE_GET_WAKE:
		get_wake(r, change->data);
		return 0;
	case ACTIVE_SET_WAKE:
		return set_wake(r, change->data);
	default:
		return -EOPNOTSUPP;
	}
}

/* --- The PCI device. */

void rtl_sleep(struct rtl *r)
{
	if (r->wake) {
		pci_enable_wake(r->pdev, PCI_D3hot, 1);
		pci_enable_wake(r->pdev, PCI_D3cold, 1);
	}
}

int rtl_wake(struct rtl *r)
{
	pci_enable_wake(r->pdev, PCI_D0, 0);
	return rtl_reset(r);
}

static void describe(struct rtl *r)
{
	struct net_device *dev = r->dev;

	dev->features |= NETIF_F_SG | NETIF_F_IP_CSUM | NETIF_F_TSO | NETIF_F_RXCSUM | NETIF_F_HW_VLAN_CTAG_TX |
			 NETIF_F_HW_VLAN_CTAG_RX;
	if (r->command & CP_DAC)
		dev->features |= NETIF_F_HIGHDMA;
	dev->hw_features |= NETIF_F_SG | NETIF_F_IP_CSUM | NETIF_F_TSO | NETIF_F_RXCSUM | NETIF_F_HW_VLAN_CTAG_TX |
			    NETIF_F_HW_VLAN_CTAG_RX;
	dev->vlan_features = NETIF_F_SG | NETIF_F_IP_CSUM | NETIF_F_TSO | NETIF_F_HIGHDMA;
	rtl_features(r, dev->features);
	r->mii.dev = dev;
	r->mii.mdio_read = phy_read;
	r->mii.mdio_write = phy_write;
	r->mii.phy_id = 32;
	r->mii.phy_id_mask = 0x3f;
	r->mii.reg_num_mask = 0x1f;
}

/* Takes the device, and reads its address. Context: May sleep. Return: 0 or an error; nothing is taken then. */
int rtl_find(struct rtl *r, struct pci_dev *pdev)
{
	u8 address[ETH_ALEN];
	int err, i;

	r->pdev = pdev;
	if (pdev->revision < 0x20)
		return -ENODEV;
	err = pci_enable_device(pdev);
	if (err)
		return err;
	err = pci_set_mwi(pdev);
	if (err)
		goto disable;
	err = pci_request_regions(pdev, "active_8139cp");
	if (err)
		goto mwi;
	r->command = CP_TX | CP_RX | CP_MULTIPLE;
	if (!dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64)))
		r->command |= CP_DAC;
	else
		err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(32));
	if (err)
		goto regions;
	err = -EIO;
	if (pci_resource_len(pdev, 1) < REGISTERS)
		goto regions;
	r->registers = pci_iomap(pdev, 1, REGISTERS);
	if (!r->registers)
		goto regions;
	err = rtl_reset(r);
	if (err)
		goto unmap;
	/* The reset has loaded it from the EEPROM. */
	for (i = 0; i < ETH_ALEN; i++)
		address[i] = rtl_read8(r, IDR + i);
	eth_hw_addr_set(r->dev, address);
	describe(r);
	pci_set_master(pdev);
	/* For a reset of the slot. */
	pci_save_state(pdev);
	device_set_wakeup_capable(&pdev->dev, true);
	return 0;
unmap:
	pci_iounmap(pdev, r->registers);
regions:
	pci_release_regions(pdev);
mwi:
	pci_clear_mwi(pdev);
disable:
	pci_disable_device(pdev);
	return err;
}

/* Gives the device back. Context: May sleep. */
void rtl_lose(struct rtl *r)
{
	pci_iounmap(r->pdev, r->registers);
	pci_release_regions(r->pdev);
	pci_clear_mwi(r->pdev);
	pci_disable_device(r->pdev);
}
