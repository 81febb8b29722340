// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The wrapper for PCI: a domain for each device, and the callbacks of struct pci_driver as requests.
 *
 * The kernel holds the device's lock around all of them, so there is one request at a time, and the protocol's state does
 * not change between two. A callback that the driver's state does not want is answered here.
 */
#include <linux/pm.h>
#include <linux/slab.h>

#include "active_pci.h"
#include "wrapper.h"

/**
 * struct device_of - A device.
 * @a: Its domain.
 * @pdev: The device.
 * @request: For all requests.
 * @driver: Its driver.
 */
struct device_of {
	struct active *a;
	struct pci_dev *pdev;
	struct active_request request;
	const struct active_pci_driver *driver;
};

static void emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct device_of *of = data;
	long result = 0;

	switch (box) {
	case PCI_PROBE_FAILED:
	case PCI_SUSPEND_FAILED:
	case PCI_RESUME_FAILED:
		result = m && m->number < 0 ? m->number : -EIO;
		break;
	case PCI_ERROR_HARMLESS:
		result = PCI_ERS_RESULT_CAN_RECOVER;
		break;
	case PCI_ERROR_RESET:
	case PCI_MMIO_UNUSABLE:
		result = PCI_ERS_RESULT_NEED_RESET;
		break;
	case PCI_MMIO_USABLE:
	case PCI_SLOT_READY:
		result = PCI_ERS_RESULT_RECOVERED;
		break;
	case PCI_ERROR_FATAL:
	case PCI_SLOT_FAILED:
		result = PCI_ERS_RESULT_DISCONNECT;
		break;
	}
	active_answer(&of->request, result);
}

/* The driver has ended. */
static void refused(struct active *a, struct active_message *m, void *data)
{
	struct device_of *of = data;

	active_answer(&of->request, -ENODEV);
}

static const struct active_role role = { .protocol = ACTIVE_PCI, .emitted = emitted, .refused = refused };

static long ask(struct device_of *of, unsigned int box, void *pointer, long number)
{
	return active_ask(of->a, &of->request, box, pointer, number);
}

/* Frees what belongs to a device whose driver ends now. If it does not, all of that stays. */
static void leave(struct device_of *of)
{
	const struct active_pci_driver *driver = of->driver;
	struct active *a = of->a;

	if (active_wait(a))
		return;
	if (driver->detach)
		driver->detach(a);
	active_destroy(a);
	kfree(of);
}

static bool unplug;
module_param(unplug, bool, 0644);
MODULE_PARM_DESC(unplug, "treat devices that are removed as unplugged; for tests");

static void take_away(struct device_of *of)
{
	bool here = pci_device_is_present(of->pdev);

	if (here && unplug) {
		/* The driver will leave the device as it is, which must not write to memory any more. */
		pci_clear_master(of->pdev);
		here = false;
	}
	ask(of, here ? PCI_REMOVE : PCI_UNPLUG, NULL, 0);
	leave(of);
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct active_pci_driver *driver = container_of(to_pci_driver(pdev->dev.driver), struct active_pci_driver, driver);
	char name[48];
	struct active_domain_options options = {
		.name = name, .main = driver->main, .protocols = driver->protocols, .priv_size = driver->priv_size,
		.owner = driver->driver.driver.owner,
	};
	struct device_of *of = kzalloc(sizeof(*of), GFP_KERNEL);
	int err;

	if (!of)
		return -ENOMEM;
	snprintf(name, sizeof(name), "%s@%s", driver->name, pci_name(pdev));
	of->pdev = pdev;
	of->driver = driver;
	active_request_init(&of->request);
	of->a = active_create(&options);
	if (IS_ERR(of->a)) {
		err = PTR_ERR(of->a);
		kfree(of);
		return err;
	}
	active_play(of->a, &role, of);
	err = driver->attach ? driver->attach(of->a, pdev, driver) : 0;
	if (err) {
		active_destroy(of->a);
		kfree(of);
		return err;
	}
	pci_set_drvdata(pdev, of);
	active_start(of->a);
	err = ask(of, PCI_PROBE, pdev, 0);
	if (err) {
		leave(of);
	} else if (driver->bound) {
		err = driver->bound(of->a, pdev);
		if (err)
			take_away(of);
	}
	if (err)
		pci_set_drvdata(pdev, NULL);
	return err;
}

static void remove(struct pci_dev *pdev)
{
	struct device_of *of = pci_get_drvdata(pdev);

	if (of->driver->leaving)
		of->driver->leaving(of->a, pdev);
	pci_set_drvdata(pdev, NULL);
	take_away(of);
}

static void shutdown(struct pci_dev *pdev)
{
	struct device_of *of = pci_get_drvdata(pdev);

	if (of && active_allows(of->a, PCI_SHUTDOWN))
		ask(of, PCI_SHUTDOWN, NULL, 0);
}

static int go_to_sleep(struct device *dev, long event)
{
	struct device_of *of = dev_get_drvdata(dev);

	return of && active_allows(of->a, PCI_SUSPEND) ? ask(of, PCI_SUSPEND, NULL, event) : 0;
}

static int wake_up_device(struct device *dev, long event)
{
	struct device_of *of = dev_get_drvdata(dev);

	return of && active_allows(of->a, PCI_RESUME) ? ask(of, PCI_RESUME, NULL, event) : 0;
}

static int suspend(struct device *dev) { return go_to_sleep(dev, PM_EVENT_SUSPEND); }
static int freeze(struct device *dev) { return go_to_sleep(dev, PM_EVENT_FREEZE); }
static int poweroff(struct device *dev) { return go_to_sleep(dev, PM_EVENT_HIBERNATE); }
static int resume(struct device *dev) { return wake_up_device(dev, PM_EVENT_RESUME); }
static int thaw(struct device *dev) { return wake_up_device(dev, PM_EVENT_THAW); }
static int restore(struct device *dev) { return wake_up_device(dev, PM_EVENT_RESTORE); }

static const struct dev_pm_ops pm = {
	.suspend = suspend, .resume = resume, .freeze = freeze, .thaw = thaw, .poweroff = poweroff, .restore = restore,
};

/* Asks about an error. A device that sleeps is brought up afresh anyway. */
static pci_ers_result_t ask_error(struct pci_dev *pdev, unsigned int box, long state, pci_ers_result_t otherwise)
{
	struct device_of *of = pci_get_drvdata(pdev);
	long result;

	if (!of || !active_allows(of->a, box))
		return otherwise;
	result = ask(of, box, NULL, state);
	return result < 0 ? PCI_ERS_RESULT_DISCONNECT : (pci_ers_result_t)result;
}

static pci_ers_result_t error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	return ask_error(pdev, PCI_ERROR, state,
			 state == pci_channel_io_perm_failure ? PCI_ERS_RESULT_DISCONNECT : PCI_ERS_RESULT_CAN_RECOVER);
}

static pci_ers_result_t mmio_enabled(struct pci_dev *pdev)
{
	return ask_error(pdev, PCI_MMIO_ENABLED, 0, PCI_ERS_RESULT_RECOVERED);
}

static pci_ers_result_t slot_reset(struct pci_dev *pdev)
{
	return ask_error(pdev, PCI_SLOT_RESET, 0, PCI_ERS_RESULT_RECOVERED);
}

static void error_over(struct pci_dev *pdev)
{
	struct device_of *of = pci_get_drvdata(pdev);

	if (of && active_allows(of->a, PCI_ERROR_OVER))
		ask(of, PCI_ERROR_OVER, NULL, 0);
}

static const struct pci_error_handlers error_handlers = {
	.error_detected = error_detected, .mmio_enabled = mmio_enabled, .slot_reset = slot_reset, .resume = error_over,
};

int active_pci_register(struct active_pci_driver *driver, struct module *owner)
{
	struct pci_driver *pci = &driver->driver;

	pci->name = driver->name;
	pci->id_table = driver->ids;
	pci->probe = probe;
	pci->remove = remove;
	pci->shutdown = shutdown;
	pci->driver.pm = &pm;
	pci->err_handler = &error_handlers;
	return __pci_register_driver(pci, owner, driver->name);
}
EXPORT_SYMBOL_GPL(active_pci_register);

void active_pci_unregister(struct active_pci_driver *driver)
{
	pci_unregister_driver(&driver->driver);
}
EXPORT_SYMBOL_GPL(active_pci_unregister);

struct active *active_pci_domain(struct pci_dev *pdev)
{
	struct device_of *of = pci_get_drvdata(pdev);

	return of ? of->a : NULL;
}
EXPORT_SYMBOL_GPL(active_pci_domain);
