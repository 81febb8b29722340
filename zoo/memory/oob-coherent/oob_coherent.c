// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Fills one descriptor more than the coherent ring holds; the page hides it.
 *
 * Twin: fills the coherent ring to its last descriptor.
 */
#include "zoo.h"
#include "edu.h"

#define COUNT 9

struct descriptor {
	__le64 addr;
	__le32 len;
	__le32 flags;
};

static noinline void oob_coherent_fill(struct descriptor *ring, unsigned int count)
{
	unsigned int i;

#ifdef TWIN
	for (i = 0; i < count; i++)
#else
	for (i = 0; i <= count; i++)
#endif
		WRITE_ONCE(ring[i].len, cpu_to_le32(64)); /* BUG: out-of-bounds */
}

static int oob_coherent_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct descriptor *ring;
	dma_addr_t addr;
	int err = edu_open(pdev);

	if (err)
		return err;
	ring = dma_alloc_coherent(&pdev->dev, COUNT * sizeof(*ring), &addr, GFP_KERNEL);
	if (!ring) {
		edu_close(pdev);
		return -ENOMEM;
	}
	oob_coherent_fill(ring, zoo_hide(COUNT));
	dma_free_coherent(&pdev->dev, COUNT * sizeof(*ring), ring, addr);
	return 0;
}

static void oob_coherent_remove(struct pci_dev *pdev)
{
	edu_close(pdev);
}

EDU_DRIVER(oob_coherent_probe, oob_coherent_remove);
MODULE_DESCRIPTION("zoo: writes past a coherent DMA buffer, inside its last page");
