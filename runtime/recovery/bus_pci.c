// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * PCI devices. The driver's own functions end what a device has under way (freeze), and set it up (restore); by contract,
 * these two do not change the power state. Between them, the configuration is written that the device had when it was bound.
 *
 * Some drivers wait in freeze until all requests are done, which are not done any more by a device that reaches no memory. Those
 * that have functions around a reset of the device (reset_prepare, reset_done) end requests there, and repeat them later. So
 * where there are these, the device is reset.
 */
#include <linux/pci.h>
#include <linux/pm.h>
#include <linux/pm_runtime.h>

#include "recovery/bus.h"

static void *note(struct device *dev)
{
	struct pci_dev *pci = to_pci_dev(dev);
	/* The driver may have saved a state of its own. */
	bool saved = pci->state_saved;
	struct pci_saved_state *state;

	pci_save_state(pci);
	state = pci_store_saved_state(pci);
	pci->state_saved = saved;
	return state;
}

static void forget(void *state)
{
	kfree(state);
}

static void stop(struct device *dev)
{
	pci_clear_master(to_pci_dev(dev));
}

/* Writes what was noted. Where there was no memory for a note, the device may reach memory again all the same. */
static void configure(struct pci_dev *pci, void *state)
{
	if (!state) {
		pci_set_master(pci);
		return;
	}
	pci_load_saved_state(pci, state);
	pci_restore_state(pci);
}

static const char *reset(struct pci_dev *pci, const struct pci_error_handlers *driver, void *state)
{
	int err;

	/* The device is cut off, so the driver is not to wait for it. */
	pci->error_state = pci_channel_io_frozen;
	driver->reset_prepare(pci);
	err = __pci_reset_function_locked(pci);
	if (!err)
		configure(pci, state);
	pci->error_state = pci_channel_io_normal;
	if (err)
		return "the device cannot be reset";
	driver->reset_done(pci);
	return NULL;
}

static const char *restore_awake(struct device *dev, void *state)
{
	const struct pci_error_handlers *handlers = to_pci_dev(dev)->driver->err_handler;
	const struct dev_pm_ops *pm = dev->driver->pm;
	int err;

	if (handlers && handlers->reset_prepare && handlers->reset_done)
		return reset(to_pci_dev(dev), handlers, state);
	if (!pm || !pm->freeze || !pm->restore)
		return GUARDRAIL_NO_RESTORE;
	err = pm->freeze(dev);
	if (!err)
		configure(to_pci_dev(dev), state);
	err = err ?: pm->restore(dev);
	return err ? GUARDRAIL_RESTORE_FAILED : NULL;
}

/* A device that sleeps is woken first, as the kernel does before freeze. Where it cannot sleep, this does nothing. */
static const char *restore(struct device *dev, void *state)
{
	const char *failed;

	pm_runtime_get_sync(dev);
	failed = restore_awake(dev, state);
	pm_runtime_put(dev);
	return failed;
}

const struct guardrail_bus guardrail_bus_pci = {
	.symbol = "pci_bus_type", .note = note, .forget = forget, .renews = true, .stop = stop, .restore = restore,
};
