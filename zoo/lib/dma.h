/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the DMA modules share: a device without hardware. Memory is mapped for it as for every device of the machine,
 * and nothing is ever transferred.
 */
#ifndef ZOO_DMA_H
#define ZOO_DMA_H

#include <linux/dma-mapping.h>
#include <linux/dmapool.h>
#include <linux/io.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>

/* The mask comes with the registration and not by dma_set_mask, which lets newer kernels leave dma_sync_* calls out. */
static inline struct platform_device *zoo_dma_add(int id)
{
	const struct platform_device_info info = {
		.name = KBUILD_MODNAME,
		.id = id,
		.dma_mask = DMA_BIT_MASK(64),
	};

	return platform_device_register_full(&info);
}

/* A module that calls start(dev) at load and stop(dev) at unload. */
#define ZOO_DMA_MODULE(start, stop)					\
static struct platform_device *zoo_dma_device;				\
static int __init zoo_dma_init(void)					\
{									\
	int err;							\
									\
	zoo_dma_device = zoo_dma_add(PLATFORM_DEVID_NONE);		\
	if (IS_ERR(zoo_dma_device))					\
		return PTR_ERR(zoo_dma_device);				\
	err = start(&zoo_dma_device->dev);				\
	if (err)							\
		platform_device_unregister(zoo_dma_device);		\
	return err;							\
}									\
static void __exit zoo_dma_exit(void)					\
{									\
	stop(&zoo_dma_device->dev);					\
	platform_device_unregister(zoo_dma_device);			\
}									\
module_init(zoo_dma_init);						\
module_exit(zoo_dma_exit)

static inline void zoo_dma_nothing(struct device *dev)
{
}

/* A module that calls run(dev, buffer) at load with a zeroed heap buffer, which begins with a cache line. */
#define ZOO_DMA_BUFFER(run, size)					\
static int __init zoo_dma_start(struct device *dev)			\
{									\
	void *buffer = kzalloc(size, GFP_KERNEL);			\
	int err;							\
									\
	if (!buffer)							\
		return -ENOMEM;						\
	err = run(dev, buffer);						\
	kfree(buffer);							\
	return err;							\
}									\
ZOO_DMA_MODULE(zoo_dma_start, zoo_dma_nothing)

#endif
