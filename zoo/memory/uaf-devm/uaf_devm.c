// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the device's managed state for a last summary after the device was unregistered.
 *
 * Twin: reads the device's managed state for a last summary, then unregisters the device.
 */
#include <linux/platform_device.h>
#include "zoo.h"

/* Of a size that the rest of the kernel rarely asks for, so that nobody takes the freed memory over. */
struct state {
	unsigned long packets;
	u8 scratch[5000];
};

static struct platform_device *device;

static int uaf_devm_probe(struct platform_device *pdev)
{
	struct state *s = devm_kmalloc(&pdev->dev, sizeof(*s), GFP_KERNEL);

	if (!s)
		return -ENOMEM;
	s->packets = 17;
	platform_set_drvdata(pdev, s);
	return 0;
}

static struct platform_driver driver = {
	.driver.name = KBUILD_MODNAME,
	.probe = uaf_devm_probe,
};

static noinline void uaf_devm_detach(void)
{
	struct state *s = platform_get_drvdata(device);

	if (!s)
		return;
#ifdef TWIN
	zoo_sink = READ_ONCE(s->packets);
#endif
	platform_device_unregister(device);
#ifndef TWIN
	zoo_sink = READ_ONCE(s->packets); /* BUG: use-after-free */
#endif
}

static int __init uaf_devm_init(void)
{
	int err = platform_driver_register(&driver);

	if (err)
		return err;
	device = platform_device_register_simple(KBUILD_MODNAME, PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(device)) {
		platform_driver_unregister(&driver);
		return PTR_ERR(device);
	}
	return 0;
}

static void __exit uaf_devm_exit(void)
{
	uaf_devm_detach();
	platform_driver_unregister(&driver);
}

module_init(uaf_devm_init);
module_exit(uaf_devm_exit);
MODULE_DESCRIPTION("zoo: reads a device's managed memory after the device is gone");
