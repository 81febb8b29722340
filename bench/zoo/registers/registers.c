// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Times accesses to a register of QEMU's edu device that does nothing else.
 * A write of N to an attribute makes N accesses; a read of it returns the nanoseconds that they took.
 * The attributes "read" and "write" access the register by an instruction of the driver, the others by a function of the kernel.
 */
#include <linux/ktime.h>
#include "zoo.h"
#include "edu.h"

struct registers {
	void __iomem *base;
	u64 taken[4];
};

static u64 registers_time(void __iomem *live, int kind, u32 count)
{
	u64 start = ktime_get_ns();
	u32 i;

	for (i = 0; i < count; i++) {
		switch (kind) {
		case 0:
			readl(live);
			break;
		case 1:
			writel(i, live);
			break;
		case 2:
			ioread32(live);
			break;
		default:
			iowrite32(i, live);
			break;
		}
	}
	return ktime_get_ns() - start;
}

#define ATTRIBUTE(name, kind)									\
static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *text)	\
{												\
	struct registers *registers = dev_get_drvdata(dev);					\
												\
	return sysfs_emit(text, "%llu\n", registers->taken[kind]);				\
}												\
static ssize_t name##_store(struct device *dev, struct device_attribute *attr, const char *text,	\
			    size_t size)							\
{												\
	struct registers *registers = dev_get_drvdata(dev);					\
	u32 count;										\
	int err = kstrtou32(text, 0, &count);							\
												\
	if (err)										\
		return err;									\
	registers->taken[kind] = registers_time(registers->base + EDU_LIVE, kind, count);	\
	return size;										\
}												\
static DEVICE_ATTR_RW(name)

ATTRIBUTE(read, 0);
ATTRIBUTE(write, 1);
ATTRIBUTE(read_helper, 2);
ATTRIBUTE(write_helper, 3);

static struct attribute *registers_attrs[] = {
	&dev_attr_read.attr,
	&dev_attr_write.attr,
	&dev_attr_read_helper.attr,
	&dev_attr_write_helper.attr,
	NULL
};
ATTRIBUTE_GROUPS(registers);

static int registers_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct registers *registers;
	int err = edu_open(pdev);

	if (err)
		return err;
	registers = kzalloc(sizeof(*registers), GFP_KERNEL);
	if (!registers)
		goto close;
	registers->base = pci_iomap(pdev, 0, 0);
	if (!registers->base)
		goto free;
	pci_set_drvdata(pdev, registers);
	if (sysfs_create_groups(&pdev->dev.kobj, registers_groups))
		goto unmap;
	return 0;
unmap:
	pci_iounmap(pdev, registers->base);
free:
	kfree(registers);
close:
	edu_close(pdev);
	return -ENOMEM;
}

static void registers_remove(struct pci_dev *pdev)
{
	struct registers *registers = pci_get_drvdata(pdev);

	sysfs_remove_groups(&pdev->dev.kobj, registers_groups);
	pci_iounmap(pdev, registers->base);
	kfree(registers);
	edu_close(pdev);
}

EDU_DRIVER(registers_probe, registers_remove);
MODULE_DESCRIPTION("bench: times accesses to a register");
MODULE_LICENSE("GPL");
