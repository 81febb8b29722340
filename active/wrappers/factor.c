// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The wrapper for devices that compute factorials: the file `factorial` of the device. A number that is written to it is a
 * request, and the answer can be read.
 *
 * The kernel makes the file after `probed`. Before `remove` it takes the file away, and waits for those who use it.
 */
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "factor.h"
#include "wrapper.h"

/**
 * struct factor - A device.
 * @lock: Protects the rest; one request at a time. Nothing nests inside.
 * @request: The request.
 * @result: The last answer.
 */
struct factor {
	struct mutex lock;
	struct active_request request;
	long result;
};

static void emitted(struct active *a, unsigned int box, struct active_message *m, void *data)
{
	struct factor *f = data;

	active_answer(&f->request, box == FACTOR_ANSWER ? factor_answer_result(m) : factor_fail_error(m));
}

/* The driver has ended. */
static void refused(struct active *a, struct active_message *m, void *data)
{
	struct factor *f = data;

	active_answer(&f->request, -ENODEV);
}

static const struct active_role role = { .protocol = ACTIVE_FACTOR, .emitted = emitted, .refused = refused };

static ssize_t factorial_store(struct device *dev, struct device_attribute *attribute, const char *text, size_t length)
{
	struct active *a = active_pci_domain(to_pci_dev(dev));
	struct factor *f = active_data(a, ACTIVE_FACTOR);
	long n, result;
	int err = kstrtol(text, 0, &n);

	if (err)
		return err;
	mutex_lock(&f->lock);
	result = active_ask(a, &f->request, FACTOR_REQUEST, NULL, n);
	if (result >= 0)
		f->result = result;
	mutex_unlock(&f->lock);
	return result < 0 ? result : length;
}

static ssize_t factorial_show(struct device *dev, struct device_attribute *attribute, char *text)
{
	struct factor *f = active_data(active_pci_domain(to_pci_dev(dev)), ACTIVE_FACTOR);

	return sysfs_emit(text, "%ld\n", READ_ONCE(f->result));
}
static DEVICE_ATTR_RW(factorial);

static struct attribute *factor_attrs[] = { &dev_attr_factorial.attr, NULL };
static const struct attribute_group factor_group = { .attrs = factor_attrs };
const struct attribute_group *factor_groups[] = { &factor_group, NULL };

int factor_attach(struct active *a, struct pci_dev *pdev, const struct active_pci_driver *driver)
{
	struct factor *f = kzalloc(sizeof(*f), GFP_KERNEL);

	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	active_request_init(&f->request);
	active_play(a, &role, f);
	return 0;
}

void factor_detach(struct active *a)
{
	kfree(active_data(a, ACTIVE_FACTOR));
}
