// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Maps the registers of the machine's event timer, reads one and leaves them mapped at unload.
 *
 * Twin: maps the registers of the machine's event timer, reads one and unmaps them at unload.
 */
#include "zoo.h"
#include "dma.h"

#define HPET 0xfed00000
#define SIZE 0x400

static void __iomem *regs;

static noinline void __iomem *dma_leak_mmio_map(void)
{
	return ioremap(HPET, SIZE); /* BUG: dma-leak */
}

static int dma_leak_mmio_start(struct device *dev)
{
	regs = dma_leak_mmio_map();
	if (!regs)
		return -ENOMEM;
	zoo_sink = readl(regs);
	return 0;
}

static void dma_leak_mmio_stop(struct device *dev)
{
#ifdef TWIN
	iounmap(regs);
#endif
}

ZOO_DMA_MODULE(dma_leak_mmio_start, dma_leak_mmio_stop);
MODULE_DESCRIPTION("zoo: leaves registers mapped at unload");
